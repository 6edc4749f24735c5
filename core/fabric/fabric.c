/* What every fabric shares: closing, and what it has to say. */
#include "fabric/fabric.h"

#include <stddef.h>

int tw_rx_open(struct tw_rx **rx_p, bool verbs, const struct tw_fabric_conf *conf,
	       const struct tw_rx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	return verbs ? tw_ud_rx_open(rx_p, conf, endpoints, n, err)
		     : tw_udp_rx_open(rx_p, conf, endpoints, n, err);
}

int tw_tx_open(struct tw_tx **tx_p, bool verbs, const struct tw_fabric_conf *conf,
	       const struct tw_tx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	return verbs ? tw_ud_tx_open(tx_p, conf, endpoints, n, err)
		     : tw_udp_tx_open(tx_p, conf, endpoints, n, err);
}

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

const char *tw_rx_describe(const struct tw_rx *rx, unsigned int line)
{
	return rx->ops->describe != NULL ? rx->ops->describe(rx, line) : "";
}

const char *tw_tx_describe(const struct tw_tx *tx, unsigned int line)
{
	return tx->ops->describe != NULL ? tx->ops->describe(tx, line) : "";
}

bool tw_rx_note(struct tw_rx *rx, struct tw_error *out)
{
	return rx->ops->note != NULL && rx->ops->note(rx, out);
}

bool tw_tx_note(struct tw_tx *tx, struct tw_error *out)
{
	return tx->ops->note != NULL && tx->ops->note(tx, out);
}
