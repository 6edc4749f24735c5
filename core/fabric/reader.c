/* What every reader and read server shares: closing. */
#include "fabric/reader.h"

void tw_reader_close(struct tw_reader *reader)
{
	if (reader != NULL) {
		reader->ops->close(reader);
	}
}

void tw_read_server_close(struct tw_read_server *server)
{
	if (server != NULL) {
		server->ops->close(server);
	}
}
