/* What every fabric shares: closing. */
#include "fabric/fabric.h"

#include <stddef.h>

void tw_rx_close(struct tw_rx *rx)
{
	if (rx != NULL) {
		rx->ops->close(rx);
	}
}

void tw_tx_close(struct tw_tx *tx)
{
	if (tx != NULL) {
		tx->ops->close(tx);
	}
}
