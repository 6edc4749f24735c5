/* rc_lap against a history whose writer stores `intent` after the datagram: rc_lap must notice.  This object comes
 * before the archive, whose own is then not taken. */
#define TW_MUTANT 4
#include "core/protocol/history.c"
