/* Days of the calendar, and New York's midnight, without a time zone database.
 *
 * Zone      Eastern time as it is since 2007: clocks go forward at 02:00 on March's second
 *           Sunday and back at 02:00 on November's first; so on both of these days midnight still has
 *           the offset of the day before.
 * Threads   pure functions. */
#ifndef TW_FEEDHANDLER_CIVIL_H
#define TW_FEEDHANDLER_CIVIL_H

#include <stdbool.h>
#include <stdint.h>

#define TW_DAY_NS UINT64_C(86400000000000)

/* Days from 1970-01-01 to YYYYMMDD, which must be a day from 1970 to 2261; -1 where it is none. */
int32_t tw_civil_days(uint32_t date);
/* The reverse, YYYYMMDD. */
uint32_t tw_civil_date(uint32_t days);

struct tw_civil_day {  /* begin_ns <= t < end_ns, UTC; 23 or 25 hours where the clock changes */
	uint32_t date; /* YYYYMMDD */
	uint64_t begin_ns, end_ns;
};

/* The day in New York whose date is given; false where there is none. */
bool tw_new_york_day(struct tw_civil_day *day, uint32_t date);
/* The day in New York that `utc_ns` is in; false before 1970-01-01 there, and from 2261 on. */
bool tw_new_york_day_of(struct tw_civil_day *day, uint64_t utc_ns);

#endif
