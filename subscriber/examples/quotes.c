/* The smallest useful subscriber: prints every change of a best bid or offer, and every loss.
 *
 *   tw-example-quotes SITE.yaml [HOST]
 *
 * Outside of the Tidewire tree it builds with nothing but
 *   cc quotes.c -ltidewire */
#include <inttypes.h>
#include <stdio.h>

#include "tidewire/sub.h"

static void print_side(const char *name, int64_t price, uint64_t qty)
{
	if (price == TW_PRICE_NONE) {
		printf(" %s none", name);
		return;
	}
	printf(" %s %.4f x %" PRIu64, name, (double)price / (double)TW_PRICE_SCALE, qty);
}

static void print_quote(const struct tw_msg_quote *quote)
{
	printf("venue %u instrument %u", quote->head.venue_id, quote->head.instrument_id);
	print_side("bid", quote->bid_price, quote->bid_qty);
	print_side("ask", quote->ask_price, quote->ask_qty);
	putchar('\n');
}

int main(int argc, char **argv)
{
	struct tw_event events[64];
	struct tw_sub_conf conf;
	struct tw_error err;
	struct tw_sub *sub;
	int n;

	if (argc < 2) {
		fprintf(stderr, "usage: %s SITE.yaml [HOST]\n", argv[0]);
		return 64;
	}
	tw_sub_conf_init(&conf);
	conf.site_path = argv[1];
	conf.as = argv[2];
	if (tw_sub_open(&sub, &conf, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	while ((n = tw_sub_poll(sub, events, 64)) >= 0) {
		if (n == 0) {
			tw_sub_idle(sub);
		}
		for (int i = 0; i < n; i++) {
			const struct tw_event *ev = &events[i];
			const struct tw_msg_head *head = (const void *)ev->data;
			if ((ev->flags & TW_EV_LATE) != 0) {
				continue; /* mode latest: a newer one has been printed */
			}
			if (ev->type == TW_EV_MSG && head->sbe.template_id == TW_MSG_QUOTE) {
				print_quote((const void *)head);
			} else if (ev->type == TW_EV_LOST) {
				/* what was built from this channel is no longer right */
				printf("channel %u lost %" PRIu64 " to %" PRIu64 "\n", ev->channel,
				       ev->seq, ev->end_seq - 1);
			}
		}
		fflush(stdout);
	}
	tw_sub_error(sub, 0, &err);
	fprintf(stderr, "%s\n", err.text);
	tw_sub_close(sub);
	return 1;
}
