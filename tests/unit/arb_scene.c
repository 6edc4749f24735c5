/* Scenes for the arbiter's unit tests: see arb_scene.h. */
#include "tests/unit/arb_scene.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tw_arb_conf usual(void)
{
	return (struct tw_arb_conf){ .channel = CHANNEL,
				     .environment = ENVIRONMENT,
				     .start = TW_START_SESSION,
				     .lines = 2,
				     .wait_ns = WAIT_NS,
				     .heartbeat_max_ns = HEARTBEAT_NS,
				     .session_takeover_ns = TAKEOVER_NS,
				     .store_dgrams = 8,
				     .mtu_bytes = MTU_BYTES };
}

struct scene *scene_new(const struct tw_arb_conf *conf)
{
	struct scene *scene = aligned_alloc(_Alignof(struct scene), sizeof(*scene));
	size_t size = tw_arb_size(conf);

	cr_assert_not_null(scene);
	memset(scene, 0, sizeof(*scene));
	cr_assert_neq(size, 0);
	scene->memory = aligned_alloc(64, size);
	cr_assert_not_null(scene->memory);
	scene->conf = *conf;
	scene->now_ns = 1000000;
	scene_restart(scene);
	return scene;
}

void scene_restart(struct scene *scene)
{
	scene->text[0] = '\0';
	scene->spec = (struct tw_ledger_spec){ .channel = CHANNEL,
					       .environment = ENVIRONMENT,
					       .publisher = 1,
					       .session = SESSION,
					       .packet_seq = 1 };
	tw_ledger_init(&scene->ledger);
	scene->ledger.latest = scene->conf.latest;
	int rc = tw_arb_init(&scene->arb, scene->memory, tw_arb_size(&scene->conf), &scene->conf,
			     scene->now_ns);
	cr_assert_eq(rc, TW_OK);
}

void scene_free(struct scene *scene)
{
	free(scene->memory);
	free(scene);
}

__attribute__((format(printf, 2, 3))) static void say(struct scene *scene, const char *fmt, ...)
{
	size_t used = strlen(scene->text);
	va_list args;

	va_start(args, fmt);
	if (used != 0 && used + 3 < sizeof(scene->text)) {
		used += (size_t)snprintf(scene->text + used, sizeof(scene->text) - used, ", ");
	}
	(void)vsnprintf(scene->text + used, sizeof(scene->text) - used, fmt, args);
	va_end(args);
}

static void say_run(struct scene *scene, const struct tw_arb_run *run)
{
	char line = run->line == A ? 'A' : 'B';

	line = run->repaired ? 'R' : line;
	switch (run->type) {
	case TW_RUN_DATA:
		say(scene, "%s %" PRIu64 "-%" PRIu64 " %c%s", run->fills_gap ? "fill" : "data",
		    run->first_seq, run->end_seq - 1, line, run->from_store ? "*" : "");
		break;
	case TW_RUN_GAP:
		say(scene, "gap %" PRIu64 "-%" PRIu64, run->first_seq, run->end_seq - 1);
		break;
	case TW_RUN_LOST:
		say(scene, "lost %" PRIu64 "-%" PRIu64, run->first_seq, run->end_seq - 1);
		break;
	case TW_RUN_SESSION:
		say(scene, "session %" PRIu64 " from %" PRIu64, run->session, run->first_seq);
		break;
	case TW_RUN_END:
		say(scene, "end %" PRIu64, run->first_seq);
		break;
	case TW_RUN_LINE_DOWN:
		say(scene, "down %c", line);
		break;
	case TW_RUN_LINE_UP:
		say(scene, "up %c", line);
		break;
	}
}

static void pull(struct scene *scene)
{
	struct tw_arb_run run;

	while (tw_arb_next(scene->arb, &run)) {
		bool holds = tw_ledger_take(&scene->ledger, &run);
		cr_assert(holds, "%s\n after: %s", scene->ledger.error, scene->text);
		say_run(scene, &run);
	}
	cr_assert(tw_ledger_pulled(&scene->ledger), "%s", scene->ledger.error);
}

static enum tw_arb_result give(struct scene *scene, uint32_t line)
{
	struct tw_dgram dgram;
	uint32_t len = tw_ledger_dgram(scene->bytes, MTU_BYTES, &scene->spec);
	enum tw_dgram_verdict verdict = tw_dgram_parse(&dgram, scene->bytes, len);

	cr_assert_eq(verdict, TW_DGRAM_OK, "%s", tw_dgram_verdict_text(verdict));
	enum tw_arb_result result =
		tw_arb_input(scene->arb, line, &dgram, scene->now_ns, scene->now_ns);
	tw_ledger_give(&scene->ledger, &dgram, result);
	pull(scene);
	/* What was borrowed may be gone from here on. */
	memset(scene->bytes, 0xa5, sizeof(scene->bytes));
	return result;
}

enum tw_arb_result give_data(struct scene *scene, uint32_t line, uint64_t first_seq,
			     uint64_t last_seq)
{
	scene->spec.flags = 0;
	scene->spec.first_seq = first_seq;
	scene->spec.end_seq = last_seq + 1;
	return give(scene, line);
}

enum tw_arb_result give_flags(struct scene *scene, uint32_t line, unsigned int flags,
			      uint64_t first_seq, uint64_t end_seq)
{
	scene->spec.flags = (uint8_t)flags;
	scene->spec.first_seq = first_seq;
	scene->spec.end_seq = end_seq;
	return give(scene, line);
}

enum tw_arb_result give_heartbeat(struct scene *scene, uint32_t line, uint64_t next_seq)
{
	return give_flags(scene, line, TW_WIRE_HEARTBEAT, next_seq, next_seq);
}

enum tw_arb_result give_end(struct scene *scene, uint32_t line, uint64_t next_seq)
{
	return give_flags(scene, line, TW_WIRE_HEARTBEAT | TW_WIRE_END, next_seq, next_seq);
}

enum tw_arb_result give_hole(struct scene *scene, uint32_t line, uint64_t first_seq,
			     uint64_t last_seq)
{
	return give_flags(scene, line, TW_WIRE_HOLE, first_seq, last_seq + 1);
}

enum tw_arb_repaired give_history(struct scene *scene, uint64_t first_seq, uint64_t last_seq)
{
	struct tw_dgram dgram;

	scene->spec.first_seq = first_seq;
	scene->spec.end_seq = last_seq + 1;
	uint32_t len = tw_ledger_dgram(scene->bytes, MTU_BYTES, &scene->spec);
	cr_assert_eq(tw_dgram_parse(&dgram, scene->bytes, len), TW_DGRAM_OK);
	enum tw_arb_repaired result =
		tw_arb_repair(scene->arb, &dgram, scene->now_ns, scene->now_ns);
	pull(scene);
	memset(scene->bytes, 0xa5, sizeof(scene->bytes));
	return result;
}

uint64_t give_up(struct scene *scene, uint64_t first_seq, uint64_t last_seq)
{
	uint64_t lost_msgs = tw_arb_give_up(scene->arb, first_seq, last_seq + 1, scene->now_ns);

	pull(scene);
	return lost_msgs;
}

void idle(struct scene *scene, uint32_t line)
{
	struct tw_arb_run run;

	if (!tw_arb_idle(scene->arb, line, scene->now_ns)) {
		cr_expect(!tw_arb_next(scene->arb, &run), "nothing was to come, and it does");
	}
	pull(scene);
}

void idle_all(struct scene *scene)
{
	for (uint32_t line = 0; line < scene->conf.lines; line++) {
		idle(scene, line);
	}
}

void pass(struct scene *scene, uint64_t ns)
{
	scene->now_ns += ns;
}

/* A scene where both lines are up and 1 to 3 have been delivered. */
struct scene *running(const struct tw_arb_conf *conf)
{
	struct scene *scene = scene_new(conf);

	cr_assert_eq(give_data(scene, A, 1, 3), TW_ARB_FIRST);
	cr_assert_eq(give_data(scene, B, 1, 3), TW_ARB_DUPLICATE);
	EXPECT(scene, "up A, session 7 from 1, data 1-3 A, up B");
	return scene;
}

struct scene *running_usual(void)
{
	struct tw_arb_conf conf = usual();
	return running(&conf);
}
