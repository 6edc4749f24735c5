/* The parts of tw-subscribe: symbols, lines of output, tally and summary. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "subscriber/subscribe.h"
#include "tests/support/pub_bed.h"
#include "tests/support/sub_stream.h"
#include "wire/datagram.h"

static struct tw_msg_instrument_definition definition(uint16_t venue, uint32_t id,
						      const char *symbol)
{
	struct tw_msg_instrument_definition def;

	tw_msg_init(&def, TW_MSG_INSTRUMENT_DEFINITION);
	def.head.venue_id = venue;
	def.head.instrument_id = id;
	memset(def.symbol, ' ', sizeof(def.symbol));
	memcpy(def.symbol, symbol, strlen(symbol));
	return def;
}

Test(subscribe, symbols_belong_to_channel_venue_and_session, .timeout = 60)
{
	struct tw_symbols symbols;
	struct tw_msg_instrument_definition def = definition(1, 5, "ZVZZT");
	struct tw_msg_head other = def.head;

	cr_assert_eq(tw_symbols_init(&symbols, NULL), TW_OK);
	cr_assert_null(tw_symbols_find(&symbols, 1, 7, &def.head));
	tw_symbols_learn(&symbols, 1, 7, &def);
	cr_assert_str_eq(tw_symbols_find(&symbols, 1, 7, &def.head), "ZVZZT");
	cr_assert_null(tw_symbols_find(&symbols, 2, 7, &def.head), "another channel");
	cr_assert_null(tw_symbols_find(&symbols, 1, 8, &def.head), "another session");
	other.venue_id = 2;
	cr_assert_null(tw_symbols_find(&symbols, 1, 7, &other), "another venue");
	other = def.head;
	other.instrument_id = 6;
	cr_assert_null(tw_symbols_find(&symbols, 1, 7, &other), "another instrument");

	def = definition(1, 5, "0123456789abcdef0123456789abcdef"); /* no terminator */
	tw_symbols_learn(&symbols, 1, 8, &def);
	cr_assert_str_eq(tw_symbols_find(&symbols, 1, 8, &def.head),
			 "0123456789abcdef0123456789abcdef");
	cr_assert_null(tw_symbols_find(&symbols, 1, 7, &def.head));
	cr_assert_eq(symbols.count, 1);
	tw_symbols_fini(&symbols);
}

Test(subscribe, symbol_table_is_bounded, .timeout = 60)
{
	struct tw_symbols symbols;
	struct tw_msg_instrument_definition def = definition(1, 0, "A");
	char name[16];

	cr_assert_eq(tw_symbols_init(&symbols, NULL), TW_OK);
	for (uint32_t id = 0; id < TW_SYMBOLS_MAX + 10; id++) {
		def.head.instrument_id = id * 4096u; /* multiples: the worst for a plain modulo */
		(void)snprintf(def.symbol, sizeof(def.symbol), "S%u", id);
		tw_symbols_learn(&symbols, 1, 7, &def);
	}
	cr_assert_eq(symbols.count, TW_SYMBOLS_MAX);
	cr_assert_eq(symbols.refused, 10);
	for (uint32_t id = 0; id < TW_SYMBOLS_MAX + 10; id++) {
		def.head.instrument_id = id * 4096u;
		const char *found = tw_symbols_find(&symbols, 1, 7, &def.head);
		(void)snprintf(name, sizeof(name), "S%u", id);
		if (id < TW_SYMBOLS_MAX) {
			cr_assert_str_eq(found, name);
		} else {
			cr_assert_null(found);
		}
	}
	/* what is known is still renewed */
	def = definition(1, 4096, "NEW");
	tw_symbols_learn(&symbols, 1, 8, &def);
	cr_assert_str_eq(tw_symbols_find(&symbols, 1, 8, &def.head), "NEW");
	cr_assert_eq(symbols.refused, 10);
	tw_symbols_fini(&symbols);
}

struct output {
	struct tw_app app;
	struct tw_subscribe_out out;
	FILE *file;
	char text[65536];
};
static struct output output;

static void open_output(const struct tw_sub *sub, enum tw_subscribe_format format)
{
	memset(&output, 0, sizeof(output));
	output.file = tmpfile();
	cr_assert_not_null(output.file);
	cr_assert_eq(tw_subscribe_out_init(&output.out, fileno(output.file), format, NULL), TW_OK);
	output.out.app = &output.app;
	output.out.sub = sub;
}

static const char *read_output(void)
{
	tw_subscribe_out_flush(&output.out);
	cr_assert_eq(output.out.error, 0);
	rewind(output.file);
	size_t n = fread(output.text, 1, sizeof(output.text) - 1, output.file);
	output.text[n] = '\0';
	tw_subscribe_out_fini(&output.out);
	fclose(output.file);
	return output.text;
}

static struct tw_event event(enum tw_event_type type, uint64_t seq, uint64_t end_seq)
{
	return (struct tw_event){ .type = (uint8_t)type,
				  .channel = 1,
				  .session = 7,
				  .seq = seq,
				  .end_seq = end_seq,
				  .line = 1 };
}

static void put_events(void)
{
	static const enum tw_event_type types[] = { TW_EV_SESSION, TW_EV_GAP,       TW_EV_LOST,
						    TW_EV_END,     TW_EV_LINE_DOWN, TW_EV_LINE_UP };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct tw_event ev = event(types[i], 3, 5);
		tw_subscribe_out_event(&output.out, &ev);
	}
}

static void put_message(void)
{
	static struct tw_msg_quote quote;
	struct tw_event ev = event(TW_EV_MSG, 3, 4);
	struct tw_msg_instrument_definition def = definition(1, 5, "ZVZZT");

	tw_msg_init(&quote, TW_MSG_QUOTE);
	quote.head.venue_id = 1;
	quote.head.instrument_id = 5;
	ev.data = (const void *)&quote;
	ev.len_bytes = sizeof(quote);
	tw_subscribe_out_event(&output.out, &ev); /* not yet known */
	ev.data = (const void *)&def;
	ev.len_bytes = sizeof(def);
	tw_subscribe_out_event(&output.out, &ev);
	ev.data = (const void *)&quote;
	ev.len_bytes = sizeof(quote);
	tw_subscribe_out_event(&output.out, &ev);
}

Test(subscribe, events_as_lines, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub *sub = open_bed(&bed, &patient);

	open_output(sub, TW_SUBSCRIBE_JSON);
	put_events();
	cr_assert_str_eq(
		read_output(),
		"{\"event\":\"session\",\"channel\":1,\"session\":7,\"seq\":3}\n"
		"{\"event\":\"gap\",\"channel\":1,\"session\":7,\"seq\":3,\"end_seq\":5}\n"
		"{\"event\":\"lost\",\"channel\":1,\"session\":7,\"seq\":3,\"end_seq\":5}\n"
		"{\"event\":\"end\",\"channel\":1,\"session\":7,\"seq\":3}\n"
		"{\"event\":\"line_down\",\"channel\":1,\"session\":7,\"line\":\"b\"}\n"
		"{\"event\":\"line_up\",\"channel\":1,\"session\":7,\"line\":\"b\"}\n");
	open_output(sub, TW_SUBSCRIBE_TEXT);
	put_events();
	cr_assert_str_eq(read_output(), "-- session channel=1 session=7 seq=3\n"
					"-- gap channel=1 session=7 seq=3 end_seq=5\n"
					"-- lost channel=1 session=7 seq=3 end_seq=5\n"
					"-- end channel=1 session=7 seq=3\n"
					"-- line_down channel=1 session=7 line=b\n"
					"-- line_up channel=1 session=7 line=b\n");

	open_output(sub, TW_SUBSCRIBE_JSON);
	output.out.messages_only = true;
	put_events();
	put_message();
	const char *at = read_output();
	cr_assert_null(strstr(at, "\"event\":"));
	cr_assert_not_null(strstr(at, "\"kind\":\"Quote\",\"venue\":\"XTST\",\"symbol\":null"));
	cr_assert_not_null(
		strstr(at, "\"kind\":\"Quote\",\"venue\":\"XTST\",\"symbol\":\"ZVZZT\""));
	tw_sub_close(sub);
	pub_bed_close(&bed);
}

Test(subscribe, output_ends_where_the_reader_does, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub *sub = open_bed(&bed, &patient);
	int fds[2];

	tw_app_init(&output.app, "test"); /* no SIGPIPE */
	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	cr_assert_eq(tw_subscribe_out_init(&output.out, fds[1], TW_SUBSCRIBE_JSON, NULL), TW_OK);
	output.out.app = &output.app;
	output.out.sub = sub;
	close(fds[0]);
	put_events();
	tw_subscribe_out_flush(&output.out);
	cr_assert_eq(output.out.error, EPIPE);
	put_events();
	cr_assert_eq(output.out.used, 0, "nothing gathers after that");
	tw_subscribe_out_fini(&output.out);
	close(fds[1]);

	/* a reader that stalls does not keep a stopping program */
	cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
	cr_assert_eq(tw_subscribe_out_init(&output.out, fds[1], TW_SUBSCRIBE_JSON, NULL), TW_OK);
	output.out.app = &output.app;
	output.out.sub = sub;
	tw_app_stop(&output.app, 0);
	for (unsigned int i = 0; i < 1000; i++) { /* more than a pipe holds */
		put_events();
	}
	tw_subscribe_out_flush(&output.out);
	cr_assert_eq(output.out.error, ETIMEDOUT);
	tw_subscribe_out_fini(&output.out);
	close(fds[0]);
	close(fds[1]);
	tw_sub_close(sub);
	pub_bed_close(&bed);
}

Test(subscribe, tally_and_summary, .timeout = 60)
{
	const struct pub_bed_conf two = { .channels = 2, .wait_us = PATIENT_US };
	struct pub_bed bed;
	struct tw_tally tally;
	struct tw_symbols symbols = { .count = 3 };
	struct tw_sub *sub = open_bed(&bed, &two);

	cr_assert_eq(tw_tally_init(&tally, sub, NULL), TW_OK);
	cr_assert_eq(tally.channel_count, 2);
	cr_assert_not(tw_tally_over(&tally));
	for (uint64_t i = 0; i < TW_TALLY_RANGES + 6; i++) {
		struct tw_event lost = event(TW_EV_LOST, 10 * i + 1, 10 * i + 4);
		tw_tally_event(&tally, &lost);
	}
	cr_assert_eq(tally.lost_messages, 3ull * (TW_TALLY_RANGES + 6));
	cr_assert_eq(tally.lost_ranges, TW_TALLY_RANGES + 6);
	struct tw_event end = event(TW_EV_END, 9, 9);
	tw_tally_event(&tally, &end);
	cr_assert_not(tw_tally_over(&tally), "the other channel goes on");
	end.channel = 2;
	tw_tally_event(&tally, &end);
	cr_assert(tw_tally_over(&tally));
	struct tw_event session = event(TW_EV_SESSION, 1, 1);
	tw_tally_event(&tally, &session);
	cr_assert_not(tw_tally_over(&tally), "a new session begins");
	struct tw_event down = event(TW_EV_DOWN, 1, 1);
	cr_assert_not(tw_tally_any_down(&tally));
	tw_tally_event(&tally, &down);
	cr_assert(tw_tally_over(&tally) && tw_tally_any_down(&tally));
	struct tw_msg_head head = { .sbe = { .template_id = 999 } };
	struct tw_event unknown = event(TW_EV_MSG, 1, 2);
	unknown.data = (const void *)&head;
	unknown.flags = TW_EV_UNKNOWN;
	tw_tally_event(&tally, &unknown);
	cr_assert_eq(tally.kinds[0], 1);

	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);
	cr_assert_not_null(file);
	tw_subscribe_summary(file, sub, &tally, &symbols, "end");
	cr_assert_eq(fclose(file), 0);
	cr_assert_eq(strchr(text, '\n'), text + size - 1, "one line");
	static const char *const wanted[] = {
		"\"ended_by\":\"end\"",      "\"transport\":\"udp\"",  "\"fault_layer\":false",
		"\"kinds\":{\"unknown\":1}", "\"lost_ranges\":70",     "\"lost_messages\":210",
		"\"lost_cut\":true",         "\"name\":\"channel-2\"", "\"p50_ns\":null",
	};
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		cr_assert_not_null(strstr(text, wanted[i]), "%s is not in %s", wanted[i], text);
	}
	size_t ranges = 0;
	for (const char *at = strstr(text, "\"end_seq\""); at != NULL;
	     at = strstr(at + 1, "\"end_seq\"")) {
		ranges++;
	}
	cr_assert_eq(ranges, TW_TALLY_RANGES);
	free(text);
	tw_tally_fini(&tally);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}
