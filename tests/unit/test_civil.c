/* Days of the calendar and New York's midnight, against literals from elsewhere and the C library's zone
 * tables. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "feedhandler/civil.h"

Test(civil, days_that_are_none, .timeout = 60)
{
	static const uint32_t wrong[] = { 0,        19691231, 20190229, 20190431,
					  20191301, 20190001, 20190100, 20190132,
					  21000229, 22620101, 99999999, UINT32_MAX };
	struct tw_civil_day day;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_assert_lt(tw_civil_days(wrong[i]), 0, "%u", wrong[i]);
		cr_assert_not(tw_new_york_day(&day, wrong[i]), "%u", wrong[i]);
	}
	cr_assert_eq(tw_civil_days(19700101), 0);
	cr_assert_eq(tw_civil_days(20000229), 11016);
	cr_assert_eq(tw_civil_days(20191230), 18260);
	cr_assert_eq(tw_civil_days(22611231), 106650);
}

Test(civil, every_day_there_and_back, .timeout = 60)
{
	for (uint32_t days = 0; days <= 106650; days++) {
		uint32_t date = tw_civil_date(days);
		cr_assert_eq(tw_civil_days(date), (int32_t)days, "%u", date);
		time_t t = (time_t)days * 86400;
		struct tm tm;
		(void)gmtime_r(&t, &tm);
		cr_assert_eq(date, (uint32_t)((tm.tm_year + 1900) * 10000 + (tm.tm_mon + 1) * 100 +
					      tm.tm_mday));
	}
}

Test(civil, midnight_in_new_york, .timeout = 60)
{
	static const struct {
		uint32_t date;
		uint64_t utc_s;
		unsigned int hours;
	} days[] = {
		{ 20191230, 1577682000, 24 },                               /* 05:00 UTC */
		{ 20230822, 1692676800, 24 },                               /* 04:00 UTC */
		{ 20240310, 1710046800, 23 },                               /* clocks go forward */
		{ 20240311, 1710129600, 24 }, { 20241103, 1730606400, 25 }, /* and back */
		{ 20241104, 1730696400, 24 },
	};
	for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++) {
		struct tw_civil_day day;
		cr_assert(tw_new_york_day(&day, days[i].date));
		cr_assert_eq(day.date, days[i].date);
		cr_assert_eq(day.begin_ns, days[i].utc_s * 1000000000u, "%u", days[i].date);
		cr_assert_eq(day.end_ns - day.begin_ns, days[i].hours * UINT64_C(3600000000000),
			     "%u", days[i].date);
	}
}

/* The machine's zone tables are another source; where they are missing, the zone is UTC. */
Test(civil, as_the_zone_tables_have_it, .timeout = 60)
{
	cr_assert_eq(setenv("TZ", "America/New_York", 1), 0);
	tzset();
	if (timezone != 5 * 3600) {
		cr_skip_test("no zone tables");
	}
	for (uint32_t year = 2007; year < 2038; year++) {
		struct tw_civil_day last = { 0 };
		for (uint32_t days = (uint32_t)tw_civil_days(year * 10000 + 101), n = 0; n < 366;
		     n++, days++) {
			struct tw_civil_day day;
			cr_assert(tw_new_york_day(&day, tw_civil_date(days)));
			cr_assert(last.end_ns == 0 || last.end_ns == day.begin_ns);
			last = day;
			time_t t = (time_t)(day.begin_ns / 1000000000u);
			struct tm tm;
			(void)localtime_r(&t, &tm);
			cr_assert_eq(tm.tm_hour, 0, "%u", day.date);
			cr_assert_eq((uint32_t)tm.tm_mday, day.date % 100, "%u", day.date);
		}
	}
}

Test(civil, the_day_of_a_time, .timeout = 60)
{
	struct tw_civil_day day, want;
	for (uint32_t days = (uint32_t)tw_civil_days(20230101);
	     days < (uint32_t)tw_civil_days(20260101); days++) {
		cr_assert(tw_new_york_day(&want, tw_civil_date(days)));
		const uint64_t times[] = { want.begin_ns, want.begin_ns + 1,
					   want.begin_ns + UINT64_C(3600000000000),
					   want.end_ns - UINT64_C(3600000000001), want.end_ns - 1 };
		for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
			cr_assert(tw_new_york_day_of(&day, times[i]));
			cr_assert_eq(day.date, want.date, "%u: %zu", want.date, i);
			cr_assert_eq(day.begin_ns, want.begin_ns);
			cr_assert_eq(day.end_ns, want.end_ns);
		}
	}
	cr_assert_not(tw_new_york_day_of(&day, 0));
	cr_assert_not(tw_new_york_day_of(&day, UINT64_C(17999999999999)));
	cr_assert(tw_new_york_day_of(&day, UINT64_C(18000000000000)));
	cr_assert_eq(day.date, 19700101);
	cr_assert_not(tw_new_york_day_of(&day, UINT64_MAX));
	cr_assert_not(tw_new_york_day_of(&day, INT64_MAX));
}
