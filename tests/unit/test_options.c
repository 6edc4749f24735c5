/* Values as people type them, and what a command line says to a wrong one. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"

Test(text, numbers, .timeout = 60)
{
	static const struct {
		const char *text;
		bool hex;
		enum tw_number rc;
		uint64_t v;
	} cases[] = {
		{ "0", false, TW_NUMBER_OK, 0 },
		{ "007", false, TW_NUMBER_OK, 7 },
		{ "18446744073709551615", false, TW_NUMBER_OK, UINT64_MAX },
		{ "18446744073709551616", false, TW_NUMBER_BIG, 0 },
		{ "99999999999999999999", false, TW_NUMBER_BIG, 0 },
		{ "", false, TW_NUMBER_NONE, 0 },
		{ "-1", false, TW_NUMBER_NONE, 0 },
		{ "+1", false, TW_NUMBER_NONE, 0 },
		{ " 1", false, TW_NUMBER_NONE, 0 },
		{ "1 ", false, TW_NUMBER_NONE, 0 },
		{ "1.5", false, TW_NUMBER_NONE, 0 },
		{ "1_000", false, TW_NUMBER_NONE, 0 },
		{ "5 ms", false, TW_NUMBER_UNIT, 0 },
		{ "5%", false, TW_NUMBER_UNIT, 0 },
		{ "1e3", false, TW_NUMBER_UNIT, 0 },
		{ "0x1f", false, TW_NUMBER_UNIT, 0 },
		{ "0x1F", true, TW_NUMBER_OK, 31 },
		{ "0x", true, TW_NUMBER_NONE, 0 },
		{ "0xffffffffffffffff", true, TW_NUMBER_OK, UINT64_MAX },
		{ "0x10000000000000000", true, TW_NUMBER_BIG, 0 },
		{ "31", true, TW_NUMBER_OK, 31 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t v = 4711;
		cr_assert_eq(tw_text_u64(cases[i].text, cases[i].hex, &v), cases[i].rc, "'%s'",
			     cases[i].text);
		cr_assert_eq(v, cases[i].rc == TW_NUMBER_OK ? cases[i].v : 4711, "'%s'",
			     cases[i].text);
	}
}

Test(text, per_cent, .timeout = 60)
{
	static const struct {
		const char *text;
		enum tw_number rc;
		uint64_t ppm;
	} cases[] = {
		{ "0", TW_NUMBER_OK, 0 },
		{ "100", TW_NUMBER_OK, 1000000 },
		{ "0.25", TW_NUMBER_OK, 2500 },
		{ "0.0001", TW_NUMBER_OK, 1 },
		{ "9999999.9999", TW_NUMBER_OK, 99999999999 },
		{ "10000000", TW_NUMBER_NONE, 0 },
		{ "0.00001", TW_NUMBER_NONE, 0 },
		{ ".5", TW_NUMBER_NONE, 0 },
		{ "5.", TW_NUMBER_NONE, 0 },
		{ "1.2.3", TW_NUMBER_NONE, 0 },
		{ "", TW_NUMBER_NONE, 0 },
		{ "-1", TW_NUMBER_NONE, 0 },
		{ "1%", TW_NUMBER_UNIT, 0 },
		{ "1.5%", TW_NUMBER_UNIT, 0 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ppm = 4711;
		cr_assert_eq(tw_text_ppm(cases[i].text, &ppm), cases[i].rc, "'%s'", cases[i].text);
		cr_assert_eq(ppm, cases[i].rc == TW_NUMBER_OK ? cases[i].ppm : 4711, "'%s'",
			     cases[i].text);
	}
}

Test(text, words_of_a_set, .timeout = 60)
{
	static const char set[] = "text|json|none";
	cr_assert_eq(tw_text_find(set, "text"), 0);
	cr_assert_eq(tw_text_find(set, "json"), 1);
	cr_assert_eq(tw_text_find(set, "none"), 2);
	static const char *const others[] = { "", "tex", "texts", "text|json", "|", "JSON" };
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		cr_assert_eq(tw_text_find(set, others[i]), -1, "'%s'", others[i]);
	}
	char out[24];
	tw_text_or(set, out, sizeof(out));
	cr_assert_str_eq(out, "text, json or none");
	tw_text_or("a|b", out, sizeof(out));
	cr_assert_str_eq(out, "a or b");
	tw_text_or("a", out, sizeof(out));
	cr_assert_str_eq(out, "a");
	memset(out, '#', sizeof(out));
	tw_text_or(set, out, 8);
	cr_assert_str_eq(out, "text, j");
	cr_assert_eq(out[8], '#', "within its size");
}

Test(text, endpoints, .timeout = 60)
{
	uint32_t address = 1;
	uint16_t port = 2;
	static const char *const wrong[] = { "",
					     "10.0.0.9",
					     "10.0.0.9:",
					     ":17000",
					     "10.0.0:17000",
					     "10.0.0.9:65536",
					     "host:17000",
					     "10.0.0.9:-1",
					     "10.0.0.9:1:2",
					     "10.0.0.9 :1",
					     "210.000.000.0009:1" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cr_assert_not(tw_text_endpoint(wrong[i], &address, &port), "'%s'", wrong[i]);
		cr_assert_eq(address, 1);
		cr_assert_eq(port, 2);
	}
	cr_assert(tw_text_endpoint("255.255.255.255:65535", &address, &port));
	cr_assert_eq(address, UINT32_MAX);
	cr_assert_eq(port, UINT16_MAX);
	cr_assert(tw_text_endpoint("10.0.0.9:0", &address, &port));
	cr_assert_eq(address, 0x0a000009u);
	cr_assert_eq(port, 0);
}

Test(options, an_error_says_option_found_and_allowed, .timeout = 60)
{
	struct tw_error err;
	uint64_t v64 = 1;
	uint32_t v32 = 2;
	cr_assert_eq(tw_option_u64("count", "0", 1, UINT64_MAX, &v64, &err), TW_EARG);
	cr_assert_str_eq(err.text, "--count: found '0', allowed 1 to 18446744073709551615");
	cr_assert_eq(tw_option_u64("count", "", 0, 9, &v64, &err), TW_EARG);
	cr_assert_str_eq(err.text, "--count: found '', allowed 0 to 9");
	cr_assert_eq(tw_option_u32("rate", "4294967296", 0, UINT32_MAX, &v32, &err), TW_EARG);
	cr_assert_str_eq(err.text, "--rate: found '4294967296', allowed 0 to 4294967295");
	cr_assert_eq(tw_option_ppm("loss", "100.0001", &v32, &err), TW_EARG);
	cr_assert_str_eq(err.text,
			 "--loss: found '100.0001', allowed 0 to 100 with up to four decimals");
	cr_assert_eq(tw_option_word("format", "xml", "text|json|none", &v32, &err), TW_EARG);
	cr_assert_str_eq(err.text, "--format: found 'xml', allowed text, json or none");
	cr_assert_eq(v64, 1);
	cr_assert_eq(v32, 2);
}

Test(options, what_is_allowed_is_taken, .timeout = 60)
{
	struct tw_error err;
	uint64_t v64 = 0;
	uint32_t v32 = 0;
	cr_assert_eq(tw_option_u64("n", "1", 1, 1, &v64, &err), TW_OK);
	cr_assert_eq(v64, 1);
	cr_assert_eq(tw_option_u32("n", "4294967295", 0, UINT32_MAX, &v32, &err), TW_OK);
	cr_assert_eq(v32, UINT32_MAX);
	cr_assert_eq(tw_option_ppm("n", "100", &v32, &err), TW_OK);
	cr_assert_eq(v32, 1000000);
	cr_assert_eq(tw_option_word("n", "c", "a|b|c", &v32, &err), TW_OK);
	cr_assert_eq(v32, 2);
}

Test(options, a_long_value_is_cut_and_what_is_allowed_stays, .timeout = 60)
{
	char text[1000];
	struct tw_error err;
	uint32_t v = 0;
	memset(text, '9', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	cr_assert_eq(tw_option_u32("rate", text, 0, 10, &v, &err), TW_EARG);
	cr_assert_not_null(strstr(err.text, "9', allowed 0 to 10"), "%s", err.text);
}
