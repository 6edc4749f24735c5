/* The hot loop of the publisher. */
#include "base/clock.h"
#include "publisher/publisher.h"

static void turns(struct tw_publisher *pub)
{
	struct tw_idle idle = { .mode = pub->idle };
	const uint64_t slow_ns = (uint64_t)pub->site->slow_turn_us * 1000;
	const uint32_t n = pub->conf->channel_count;

	while (!tw_app_stopping(pub->app)) {
		uint64_t now_ns = tw_mono_ns();
		bool busy = false;
		for (uint32_t i = 0; i < n; i++) {
			busy |= tw_pub_channel_turn(&pub->channels[i], now_ns);
		}
		tw_counter_add(&pub->loop, TW_LOOP_turns, 1);
		if (!busy) {
			tw_counter_add(&pub->loop, TW_LOOP_empty_turns, 1);
			tw_idle_turn(&idle);
			continue;
		}
		tw_idle_reset(&idle);
		uint64_t turn_ns = tw_mono_ns() - now_ns;
		tw_counter_max(&pub->loop, TW_LOOP_max_turn_ns, turn_ns);
		if (turn_ns > slow_ns) {
			tw_counter_add(&pub->loop, TW_LOOP_slow_turns, 1);
		}
	}
}

void *tw_publisher_hot(void *arg)
{
	struct tw_publisher *pub = arg;
	pub->hot_status = tw_cpu_pin(pub->host->cpu_publisher, &pub->hot_err);
	if (pub->hot_status == TW_OK) {
		turns(pub);
	} else {
		tw_app_stop(pub->app, 1); /* the status that counts comes from the join */
	}
	return NULL;
}
