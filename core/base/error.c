/* Status codes as text and scope, from the one table in include/tidewire/error.h. */
#include "tidewire/error.h"

const char *tw_strstatus(int code)
{
	switch (code) {
#define STATUS_TEXT(name, value, scope, text) \
	case name:                            \
		return text;
		TW_STATUS_TABLE(STATUS_TEXT)
#undef STATUS_TEXT
	default:
		return "unknown status";
	}
}

enum tw_scope tw_status_scope(int code)
{
	switch (code) {
#define STATUS_SCOPE(name, value, scope, text) \
	case name:                             \
		return TW_SCOPE_##scope;
		TW_STATUS_TABLE(STATUS_SCOPE)
#undef STATUS_SCOPE
	default:
		return TW_SCOPE_HANDLE;
	}
}
