/* The pipeline of one venue feed; see feed.h. */
#include "feedhandler/feed.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "config/config.h"
#include "feedhandler/civil.h"
#include "feedhandler/registry.h"

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int make_filter(struct tw_feed_filter *filter, char *const *symbols, struct tw_error *err)
{
	uint32_t count = 0;
	while (symbols != NULL && symbols[count] != NULL) {
		filter->all = filter->all || strcmp(symbols[count], "*") == 0;
		count++;
	}
	if (symbols == NULL || filter->all) {
		filter->all = true;
		return TW_OK;
	}
	filter->symbols = calloc(count + 1u, sizeof(*filter->symbols));
	if (filter->symbols == NULL) {
		return tw_fail(err, TW_ENOMEM, "feed: out of memory");
	}
	for (uint32_t i = 0; i < count; i++) {
		filter->symbols[i] = symbols[i];
	}
	filter->count = count;
	qsort(filter->symbols, count, sizeof(*filter->symbols), compare_names);
	return TW_OK;
}

struct named_id {
	uint32_t id;
	const char *symbol;
};

static int compare_ids(const void *a, const void *b)
{
	const struct named_id *x = a;
	const struct named_id *y = b;
	if (x->id != y->id) {
		return x->id < y->id ? -1 : 1;
	}
	return strcmp(x->symbol, y->symbol);
}

/* The id that a configured symbol will get. */
static struct named_id id_of(const struct tw_feed *feed, const char *name)
{
	char symbol[TW_SYMBOL_BYTES] = "";
	size_t len = strnlen(name, TW_SYMBOL_BYTES - 1);
	memcpy(symbol, name, len);
	uint32_t id = tw_directory_find(&feed->directory, symbol);
	return (struct named_id){ .id = id != 0 ? id : tw_instrument_hash(name, len),
				  .symbol = name };
}

/* Refuses what can be refused at start: equal ids among the symbols that the channels name. */
static int check_ids(const struct tw_feed *feed, struct tw_error *err)
{
	size_t total = 0;
	for (uint32_t c = 0; c < feed->channel_count; c++) {
		total += feed->filters[c].count;
	}
	struct named_id *ids = calloc(total + 1, sizeof(*ids));
	if (ids == NULL) {
		return tw_fail(err, TW_ENOMEM, "feed: out of memory");
	}
	size_t n = 0;
	for (uint32_t c = 0; c < feed->channel_count; c++) {
		for (uint32_t i = 0; i < feed->filters[c].count; i++) {
			ids[n++] = id_of(feed, feed->filters[c].symbols[i]);
		}
	}
	qsort(ids, n, sizeof(*ids), compare_ids);
	int rc = TW_OK;
	for (size_t i = 1; i < n; i++) {
		if (ids[i].id == ids[i - 1].id && strcmp(ids[i].symbol, ids[i - 1].symbol) != 0) {
			rc = tw_fail(
				err, TW_ECONFIG,
				"symbols '%s' and '%s' have the same id %u: give the feedhandler a "
				"directory file that lists them",
				ids[i - 1].symbol, ids[i].symbol, ids[i].id);
			break;
		}
	}
	free(ids);
	return rc;
}

/* The id that a configured symbol gets is the venue's own number where it has one: no file gives it. */
static int load_directory(struct tw_feed *feed, const char *path, struct tw_error *err)
{
	if (feed->protocol->numbered) {
		return tw_fail(
			err, TW_ECONFIG,
			"%s: a directory file has no use with %s, whose instruments have the "
			"venue's own numbers",
			path, feed->protocol->name);
	}
	return tw_directory_load(&feed->directory, path, err);
}

static int check_depths(const struct tw_feed *feed, const struct tw_feed_conf *conf,
			struct tw_error *err)
{
	static const char *const names[] = { "quotes", "levels", "orders" };
	char given[32] = "";
	size_t used = 0;
	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if ((feed->protocol->depths & (UINT32_C(1) << i)) != 0) {
			used += (size_t)snprintf(given + used, sizeof(given) - used, "%s%s",
						 used == 0 ? "" : ", ", names[i]);
		}
	}
	for (uint32_t c = 0; c < conf->channel_count; c++) {
		uint32_t depth = conf->depths[c];
		if (depth >= sizeof(names) / sizeof(names[0]) ||
		    (feed->protocol->depths & (UINT32_C(1) << depth)) == 0) {
			return tw_fail(err, TW_ECONFIG,
				       "channel %u of %u: depth '%s', protocol %s gives: %s", c + 1,
				       conf->channel_count,
				       depth < sizeof(names) / sizeof(names[0]) ? names[depth]
										: "?",
				       feed->protocol->name, given);
		}
	}
	return TW_OK;
}

int tw_feed_create(struct tw_feed **feed_p, const struct tw_feed_conf *conf, struct tw_error *err)
{
	*feed_p = NULL;
	if (conf->channel_count == 0 || conf->channel_count > TW_FEED_MAX_CHANNELS) {
		return tw_fail(err, TW_ECONFIG, "feed: %u channels, allowed are 1 to %u",
			       conf->channel_count, TW_FEED_MAX_CHANNELS);
	}
	struct tw_feed *feed = calloc(1, sizeof(*feed));
	if (feed == NULL) {
		return tw_fail(err, TW_ENOMEM, "feed: out of memory");
	}
	feed->sink = conf->sink;
	feed->counters = conf->counters;
	feed->venue_id = conf->venue_id;
	feed->channel_count = conf->channel_count;
	feed->all_channels = (uint32_t)((UINT64_C(1) << conf->channel_count) - 1);
	if (conf->mic != NULL) {
		memcpy(feed->mic, conf->mic, strnlen(conf->mic, sizeof(feed->mic)));
	}
	int rc = tw_registry_protocol(&feed->protocol, conf->protocol, err);
	if (rc == TW_OK) {
		rc = tw_registry_session(&feed->session, conf->session, feed->protocol, err);
	}
	if (rc == TW_OK && feed->session->protocol != NULL &&
	    strcmp(feed->session->protocol, feed->protocol->name) != 0) {
		rc = tw_fail(err, TW_ECONFIG, "session %s: carries %s, not %s", feed->session->name,
			     feed->session->protocol, feed->protocol->name);
	}
	if (rc == TW_OK) {
		rc = check_depths(feed, conf, err);
	}
	if (rc == TW_OK && conf->directory != NULL && conf->directory[0] != '\0') {
		rc = load_directory(feed, conf->directory, err);
	}
	for (uint32_t c = 0; rc == TW_OK && c < conf->channel_count; c++) {
		rc = make_filter(&feed->filters[c], conf->symbols[c], err);
		feed->open_channels |= feed->filters[c].all ? UINT32_C(1) << c : 0;
	}
	if (rc == TW_OK && !feed->protocol->numbered) {
		rc = check_ids(feed, err);
	}
	if (rc == TW_OK) {
		uint32_t max = conf->max_instruments;
		rc = tw_instruments_init(&feed->instruments,
					 max == 0 ? TW_FEED_DEFAULT_INSTRUMENTS : max,
					 feed->protocol->numbered,
					 feed->directory.count > 0 ? &feed->directory : NULL, err);
	}
	if (rc == TW_OK) {
		feed->session_state = calloc(1, feed->session->state_bytes + 1);
		if (feed->session_state == NULL) {
			rc = tw_fail(err, TW_ENOMEM, "feed: out of memory");
		}
	}
	if (rc == TW_OK && feed->protocol->open != NULL) {
		rc = feed->protocol->open(feed, conf, err);
	}
	if (rc != TW_OK) {
		tw_feed_destroy(feed);
		return rc;
	}
	*feed_p = feed;
	return TW_OK;
}

void tw_feed_destroy(struct tw_feed *feed)
{
	if (feed == NULL) {
		return;
	}
	if (feed->protocol_state != NULL) {
		feed->protocol->close(feed);
	}
	free(feed->session_state);
	tw_instruments_fini(&feed->instruments);
	for (uint32_t c = 0; c < TW_FEED_MAX_CHANNELS; c++) {
		free(feed->filters[c].symbols);
	}
	tw_directory_free(&feed->directory);
	free(feed);
}

void tw_feed_count_input(struct tw_feed *feed, const struct tw_input *input)
{
	const struct tw_input_counts *now = &input->counts;
	struct tw_input_counts *seen = &feed->input_seen;
	tw_feed_count(feed, TW_FH_packets, now->packets - seen->packets);
	tw_feed_count(feed, TW_FH_input_bytes, now->bytes - seen->bytes);
	tw_feed_count(feed, TW_FH_foreign_packets, now->foreign - seen->foreign);
	tw_feed_count(feed, TW_FH_malformed_packets, now->malformed - seen->malformed);
	tw_feed_count(feed, TW_FH_truncated_packets, now->truncated - seen->truncated);
	*seen = *now;
}

static void show(const void *feed_p, const struct tw_packet *packet)
{
	const struct tw_feed *feed = feed_p;
	feed->session->ahead(feed, packet);
}

void tw_feed_read_unpaced(const struct tw_feed *feed, struct tw_input *input)
{
	bool looks = feed->session->ahead != NULL && feed->protocol->ahead != NULL;
	input->unpaced = true;
	input->show = looks ? show : NULL;
	input->show_ctx = feed;
}

int tw_feed_run(struct tw_feed *feed, struct tw_input *input, struct tw_error *err)
{
	struct tw_packet packet;
	int rc;
	tw_feed_read_unpaced(feed, input);
	do {
		rc = tw_input_next(input, &packet, err);
		if (rc == 1) {
			(void)tw_feed_follow(feed, input);
			tw_feed_packet(feed, &packet);
		}
	} while (rc >= 0);
	tw_feed_count_input(feed, input);
	return rc == TW_ECLOSED ? TW_OK : rc;
}

void tw_feed_session_changed(struct tw_feed *feed)
{
	tw_feed_count(feed, TW_FH_session_changes, 1);
	if (feed->protocol->session_changed != NULL) {
		feed->protocol->session_changed(feed);
	} else {
		tw_instruments_undefine(&feed->instruments);
	}
}

void tw_feed_gap(struct tw_feed *feed, uint64_t missing_msgs)
{
	tw_feed_count(feed, TW_FH_gaps, 1);
	tw_feed_count(feed, TW_FH_missing_messages, missing_msgs);
	if (feed->protocol->gap != NULL) {
		feed->protocol->gap(feed);
	}
}

static uint32_t channels_of(const struct tw_feed *feed, const char *symbol)
{
	uint32_t channels = 0;
	for (uint32_t c = 0; c < feed->channel_count; c++) {
		const struct tw_feed_filter *filter = &feed->filters[c];
		if (filter->all || (filter->count > 0 &&
				    bsearch(&symbol, filter->symbols, filter->count,
					    sizeof(*filter->symbols), compare_names) != NULL)) {
			channels |= UINT32_C(1) << c;
		}
	}
	return channels;
}

bool tw_feed_symbol(char symbol[TW_SYMBOL_BYTES], const uint8_t *bytes, size_t len_bytes)
{
	memset(symbol, 0, TW_SYMBOL_BYTES);
	while (len_bytes > 0 && bytes[len_bytes - 1] == ' ') {
		len_bytes--;
	}
	for (size_t i = 0; i < len_bytes; i++) {
		if (bytes[i] <= ' ' || bytes[i] > '~') {
			return false;
		}
		symbol[i] = (char)bytes[i];
	}
	return len_bytes > 0;
}

struct tw_instrument *tw_feed_first_sight(struct tw_feed *feed, uint64_t key,
					  const char symbol[TW_SYMBOL_BYTES])
{
	char text[TW_SYMBOL_BYTES + 1] = "";
	memcpy(text, symbol, TW_SYMBOL_BYTES);
	uint32_t channels = channels_of(feed, text);
	struct tw_instrument *instrument =
		feed->protocol->numbered
			? tw_instruments_add_numbered(&feed->instruments, (uint32_t)key, symbol,
						      channels)
			: tw_instruments_add(&feed->instruments, key, symbol, channels);
	if (instrument == NULL) {
		tw_feed_count(feed, TW_FH_instruments_refused, 1);
	} else if (instrument->state == TW_INSTRUMENT_REFUSED) {
		tw_feed_count(feed, TW_FH_id_collisions, 1);
	} else if (instrument->channels != 0) {
		tw_counter_set(&feed->counters, TW_FH_instruments,
			       tw_counter_get(&feed->counters, TW_FH_instruments) + 1);
		if (feed->directory.count > 0 && !instrument->listed) {
			tw_feed_count(feed, TW_FH_instruments_unlisted, 1);
		}
	}
	return instrument;
}

struct tw_msg_instrument_definition tw_feed_definition(const struct tw_feed *feed,
						       const struct tw_instrument *instrument,
						       const struct tw_msg_head *head)
{
	struct tw_msg_instrument_definition def = {
		.head = *head,
		.tick_price = TW_PRICE_NONE,
		.display_factor = TW_PRICE_SCALE,
		.multiplier = TW_PRICE_SCALE,
		.strike_price = TW_PRICE_NONE,
		.reference_price = TW_PRICE_NONE,
		.trading_date = tw_feed_date(feed, head->exchange_ns),
		.depth_levels = feed->protocol->depth_levels,
		.action = instrument->defined ? TW_DEF_MODIFY : TW_DEF_ADD,
		.class_ = TW_CLASS_UNKNOWN,
		.raw_id = feed->protocol->numbered ? instrument->key : 0,
	};
	tw_feed_kind(&def.head, TW_MSG_INSTRUMENT_DEFINITION, sizeof(def));
	def.head.instrument_id = instrument->id;
	memcpy(def.symbol, instrument->symbol, sizeof(def.symbol));
	memcpy(def.mic, feed->mic, sizeof(def.mic));
	memcpy(def.currency, feed->protocol->currency,
	       strnlen(feed->protocol->currency, sizeof(def.currency)));
	return def;
}

void tw_feed_define(struct tw_feed *feed, struct tw_instrument *instrument,
		    const struct tw_msg_head *head)
{
	struct tw_msg_instrument_definition def = tw_feed_definition(feed, instrument, head);
	def.head.flags &=
		TW_MSG_EVENT_END | TW_MSG_TS_BAD; /* the rest speaks of the other message */
	instrument->defined = 1;
	tw_feed_emit(feed, &def.head, instrument->channels);
}

uint32_t tw_feed_date(const struct tw_feed *feed, uint64_t exchange_ns)
{
	if (exchange_ns == 0) {
		return 0;
	}
	int64_t seconds = (int64_t)(exchange_ns / 1000000000u) + feed->protocol->zone_seconds;
	if (seconds < 86400) {
		return 0;
	}
	return tw_civil_date((uint32_t)(seconds / 86400));
}
