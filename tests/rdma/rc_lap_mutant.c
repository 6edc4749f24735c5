/* rc_lap against a history whose writer stores `intent` after the datagram: rc_lap must notice.  This object comes
 * before the archive, whose own is then not taken. */
#define TW_MUTANT 4
/* NOLINTNEXTLINE(bugprone-suspicious-include): the very source, with one store moved */
#include "core/protocol/history.c"
