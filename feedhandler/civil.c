/* Days of the calendar, and New York's midnight; see civil.h. */
#include "feedhandler/civil.h"

enum {
	FIRST_YEAR = 1970,
	LAST_YEAR = 2261,       /* the last whole year of int64 nanoseconds */
	DAYS_TO_EPOCH = 719468, /* from 0000-03-01, where years that begin in March count from */
	DAYS_IN_ERA = 146097,   /* 400 years */
	STANDARD_SECONDS = 5 * 3600,
	SUMMER_SECONDS = 4 * 3600
};

static uint32_t days_of(uint32_t year, uint32_t month, uint32_t day)
{
	uint32_t y = month <= 2 ? year - 1 : year;
	uint32_t era = y / 400;
	uint32_t year_of_era = y % 400;
	uint32_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
	uint32_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
	return era * DAYS_IN_ERA + day_of_era - DAYS_TO_EPOCH;
}

uint32_t tw_civil_date(uint32_t days)
{
	uint32_t day = days + DAYS_TO_EPOCH;
	uint32_t era = day / DAYS_IN_ERA;
	uint32_t doe = day % DAYS_IN_ERA;
	uint32_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	uint32_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	uint32_t mp = (5 * doy + 2) / 153; /* month from March, 0 to 11 */
	uint32_t month = mp < 10 ? mp + 3 : mp - 9;
	uint32_t year = era * 400 + yoe + (month <= 2 ? 1 : 0);
	return year * 10000 + month * 100 + (doy - (153 * mp + 2) / 5 + 1);
}

int32_t tw_civil_days(uint32_t date)
{
	uint32_t year = date / 10000;
	uint32_t month = date / 100 % 100;
	uint32_t day = date % 100;
	if (year < FIRST_YEAR || year > LAST_YEAR || month < 1 || month > 12 || day < 1 ||
	    day > 31) {
		return -1;
	}
	uint32_t days = days_of(year, month, day);
	return tw_civil_date(days) == date ? (int32_t)days : -1; /* February 30 is not itself */
}

/* The first Sunday on or after a day. */
static uint32_t sunday_from(uint32_t year, uint32_t month, uint32_t day)
{
	uint32_t days = days_of(year, month, day);
	return days + (7 - (days + 4) % 7) % 7; /* day 0 was a Thursday */
}

static uint64_t midnight_ns(uint32_t days)
{
	uint32_t year = tw_civil_date(days) / 10000;
	bool summer = days > sunday_from(year, 3, 8) && days <= sunday_from(year, 11, 1);
	uint64_t seconds = (uint64_t)days * 86400 + (summer ? SUMMER_SECONDS : STANDARD_SECONDS);
	return seconds * 1000000000u;
}

static void day_of_days(struct tw_civil_day *day, uint32_t days)
{
	*day = (struct tw_civil_day){ .date = tw_civil_date(days),
				      .begin_ns = midnight_ns(days),
				      .end_ns = midnight_ns(days + 1) };
}

bool tw_new_york_day(struct tw_civil_day *day, uint32_t date)
{
	int32_t days = tw_civil_days(date);
	if (days < 0) {
		return false;
	}
	day_of_days(day, (uint32_t)days);
	return true;
}

bool tw_new_york_day_of(struct tw_civil_day *day, uint64_t utc_ns)
{
	const uint64_t standard_ns = STANDARD_SECONDS * UINT64_C(1000000000);
	if (utc_ns < standard_ns) {
		return false;
	}
	uint32_t days = (uint32_t)((utc_ns - standard_ns) / TW_DAY_NS);
	if (tw_civil_date(days + 1) / 10000 >= LAST_YEAR) {
		return false;
	}
	day_of_days(day, days);
	if (utc_ns >= day->end_ns) { /* the first hour of a summer's day */
		day_of_days(day, days + 1);
	}
	return true;
}
