/* TotalView-ITCH 5.0: the lives of orders, orders that are not known, and when a book is one. */
#include "tests/support/itch_bytes.h"

/* ---- lives of orders ---- */

Test(itch50_book, an_order_from_bytes, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* 'A' number 6012478, buy 100 VOO at 87.3900; then 'F', sell, by NSDQ */
	say(&b, "41 20bd 0000 1f1acedb172e 00000000005bbe3e 42 00000064 564f4f2020202020 000d55ac");
	cr_assert_eq(b.count, 2);
	const struct tw_msg_instrument_definition *d =
		bench_msg(&b, 0, TW_MSG_INSTRUMENT_DEFINITION);
	assert_head(&d->head, 0x20bd, END);
	cr_assert_str_eq(d->symbol, "VOO");
	cr_assert_eq(d->action, TW_DEF_ADD);
	cr_assert_eq(d->raw_id, 0x20bd);
	const struct tw_msg_order_add *a = last(&b, TW_MSG_ORDER_ADD);
	assert_head(&a->head, 0x20bd, BAD);
	cr_assert_eq(a->order_id, 6012478);
	cr_assert_eq(a->side, TW_SIDE_BUY);
	cr_assert_eq(a->qty, 100);
	cr_assert_eq(a->price, INT64_C(87390000000), "%lld", (long long)a->price);
	cr_assert_eq(a->priority, 1);
	cr_assert_eq(memcmp(a->participant, "\0\0\0\0\0\0\0", 8), 0);
	say(&b, "46 20bd 0000 1f1acedb172e 00000000005bbe40 53 00000064 564f4f2020202020 000d55ac "
		"4e534451");
	a = last(&b, TW_MSG_ORDER_ADD);
	cr_assert_eq(a->side, TW_SIDE_SELL);
	cr_assert_eq(memcmp(a->participant, "NSDQ\0\0\0", 8), 0);
	cr_assert_eq(a->priority, 2);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 2);
	bench_close(&b);
}

Test(itch50_book, the_largest_price, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	add(&b, 5, 1, 'S', UINT32_MAX, UINT32_MAX, NULL);
	const struct tw_msg_order_add *a = last(&b, TW_MSG_ORDER_ADD);
	cr_assert_eq(a->price, INT64_C(429496729500000));
	cr_assert_eq(a->qty, UINT32_MAX);
	bench_close(&b);
}

Test(itch50_book, executions_in_parts, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	event(&b, 'O');
	add(&b, 5, 77, 'B', 300, 1234500, "GSCO");
	execute(&b, 5, 77, 100, 0, 0);
	const struct tw_msg_order_execute *e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, 5, PRINTED);
	cr_assert_eq(e->order_id, 77);
	cr_assert_eq(e->qty, 100);
	cr_assert_eq(e->remaining_qty, 200);
	cr_assert_eq(e->price, INT64_C(123450000000));
	cr_assert_eq(e->match_id, 9077);
	cr_assert_eq(e->side, TW_SIDE_BUY);
	cr_assert_eq(e->aggressor, TW_SIDE_SELL);
	cr_assert_eq(e->conditions, 0);
	cr_assert_eq(e->venue_conditions[0], 0);

	execute(&b, 5, 77, 50, 'Y', 1234000); /* better than its own price */
	e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, 5, PRINTED);
	cr_assert_eq(e->price, INT64_C(123400000000));
	cr_assert_eq(e->remaining_qty, 150);
	cr_assert_eq(e->aggressor, TW_SIDE_SELL);
	cr_assert_eq(e->venue_conditions[0], 'Y');

	execute(&b, 5, 77, 150, 'N', 1235000); /* in a cross: printed in bulk by its Q */
	e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, 5, END);
	cr_assert_eq(e->remaining_qty, 0);
	cr_assert_eq(e->aggressor, TW_SIDE_NONE);
	cr_assert_eq(e->venue_conditions[0], 'N');
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 0);

	execute(&b, 5, 77, 1, 0, 0); /* it is gone */
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_executed), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 0);
	bench_close(&b);
}

Test(itch50_book, printable_is_y_alone, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	event(&b, 'O');
	add(&b, 5, 77, 'S', 300, 10000, NULL);
	execute(&b, 5, 77, 100, '?', 10000);
	const struct tw_msg_order_execute *e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, 5, END);
	cr_assert_eq(e->remaining_qty, 200);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(itch50_book, cancels_and_deletes, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	event(&b, 'O');
	add(&b, 5, 8, 'S', 300, 10100, "GSCO");
	cancel(&b, 5, 8, 120);
	const struct tw_msg_order_modify *m = last(&b, TW_MSG_ORDER_MODIFY);
	assert_head(&m->head, 5, END);
	cr_assert_eq(m->order_id, 8);
	cr_assert_eq(m->qty, 180);
	cr_assert_eq(m->price, INT64_C(1010000000));
	cr_assert_eq(m->side, TW_SIDE_SELL);
	cr_assert_eq(m->keeps_priority, 1);
	cr_assert_eq(m->priority, 2); /* of its A */
	cancel(&b, 5, 8, 180);        /* of all that is left: it leaves */
	const struct tw_msg_order_delete *d = last(&b, TW_MSG_ORDER_DELETE);
	assert_head(&d->head, 5, END);
	cr_assert_eq(d->order_id, 8);
	cr_assert_eq(d->side, TW_SIDE_SELL);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 0);

	add(&b, 5, 9, 'B', 300, 10100, NULL);
	del(&b, 5, 9);
	d = last(&b, TW_MSG_ORDER_DELETE);
	cr_assert_eq(d->order_id, 9);
	cr_assert_eq(d->side, TW_SIDE_BUY);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 0);
	bench_close(&b);
}

Test(itch50_book, replace_chains_inherit_side_and_participant, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	event(&b, 'O');
	add(&b, 5, 100, 'S', 300, 10100, "GSCO");
	for (uint64_t ref = 100; ref < 200; ref++) {
		replace(&b, 5, ref, ref + 1, (uint32_t)ref, (uint32_t)(2 * ref));
		const struct tw_msg_order_replace *r = last(&b, TW_MSG_ORDER_REPLACE);
		assert_head(&r->head, 5, END);
		cr_assert_eq(r->order_id, ref);
		cr_assert_eq(r->new_order_id, ref + 1);
		cr_assert_eq(r->qty, ref);
		cr_assert_eq(r->price, (int64_t)ref * 2 * 100000);
		cr_assert_eq(r->side, TW_SIDE_SELL);
		cr_assert_eq(r->priority, next_seq - 1); /* it queues anew */
		cr_assert_eq(memcmp(r->participant, "GSCO\0\0\0", 8), 0);
		cr_assert_eq(bench_counter(&b, TW_FH_orders), 1);
	}
	execute(&b, 5, 100, 1, 0, 0); /* the first number is gone */
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_executed), 1);
	execute(&b, 5, 200, 199, 0, 0);
	const struct tw_msg_order_execute *e = last(&b, TW_MSG_ORDER_EXECUTE);
	cr_assert_eq(e->side, TW_SIDE_SELL);
	cr_assert_eq(e->remaining_qty, 0);
	cr_assert_eq(e->price, INT64_C(39800000));
	bench_close(&b);
}

/* ---- orders that are not known ---- */

Test(itch50_book, unknown_orders_change_nothing_and_invent_nothing, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	add(&b, 5, 1, 'B', 100, 10000, NULL); /* names the instrument */
	size_t before = b.count;
	cancel(&b, 5, 42, 10);
	del(&b, 5, 42);
	replace(&b, 5, 42, 43, 100, 10000);
	cancel(&b, 5, 43, 10); /* whose side nobody knows either */
	del(&b, 5, 43);
	cr_assert_eq(b.count, before);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_cancelled), 2);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_deleted), 2);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_replaced), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 1);

	execute(&b, 5, 42, 70, 0, 0); /* a trade all the same */
	const struct tw_msg_order_execute *e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, 5, PRINTED | TW_MSG_BOOK_BAD);
	cr_assert_eq(e->order_id, 42);
	cr_assert_eq(e->qty, 70);
	cr_assert_eq(e->price, TW_PRICE_NONE);
	cr_assert_eq(e->remaining_qty, 0);
	cr_assert_eq(e->side, TW_SIDE_NONE);
	cr_assert_eq(e->aggressor, TW_SIDE_NONE);
	cr_assert_eq(e->match_id, 9042);
	execute(&b, 5, 42, 30, 'Y', 20000);
	e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, 5, PRINTED | TW_MSG_BOOK_BAD);
	cr_assert_eq(e->price, 2 * DOLLARS);
	cr_assert_eq(e->side, TW_SIDE_NONE);
	execute(&b, 5, 42, 30, 'N', 20000);
	e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, 5, BAD);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_executed), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_priced), 2);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 0);
	bench_close(&b);
}

/* An order is one of its instrument: a message of another one does not touch it. */
Test(itch50_book, an_order_of_another_instrument, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	add(&b, 5, 1, 'B', 100, 10000, NULL);
	add(&b, 6, 2, 'B', 100, 10000, NULL);
	del(&b, 6, 1);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_deleted), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 2);
	bench_close(&b);
}

Test(itch50_book, trades_of_instruments_not_named_yet, .timeout = 60)
{
	static char some[] = "S5";
	static char *symbols[] = { some, NULL };
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .channel_count = 2, .symbols = { NULL, symbols } });
	execute(&b, 5, 42, 70, 0, 0);
	execute(&b, 5, 42, 70, 'Y', 10000);
	say(&b, "42 0005 0000 1f1acedb172e 000000000003e651");
	cr_assert_eq(b.count,
		     3); /* with the id alone: a definition comes when the symbol is said */
	for (size_t i = 0; i < 3; i++) {
		const struct tw_msg_head *head = (const void *)b.msgs[i].bytes;
		cr_assert_eq(head->instrument_id, 5);
		cr_assert_eq(b.msgs[i].channels, 1); /* whether channel 1 carries it nobody knows */
	}
	cr_assert_eq(bench_counter(&b, TW_FH_unnamed_messages), 3);
	del(&b, 5, 42);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_deleted), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_unnamed_messages), 3);
	add(&b, 5, 1, 'B', 100, 10000, NULL);
	(void)bench_msg(&b, 3, TW_MSG_INSTRUMENT_DEFINITION);
	execute(&b, 5, 42, 70, 0, 0);
	cr_assert_eq(b.msgs[b.count - 1].channels, 3);
	cr_assert_eq(bench_counter(&b, TW_FH_unnamed_messages), 3);
	bench_close(&b);
}

Test(itch50_book, nobody_carries_it, .timeout = 60)
{
	static char other[] = "S6";
	static char *symbols[] = { other, NULL };
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .symbols = { symbols } });
	add(&b, 5, 1, 'B', 100, 10000, NULL);
	execute(&b, 5, 1, 10, 0, 0);
	cancel(&b, 5, 1, 10);
	replace(&b, 5, 1, 2, 10, 10000);
	del(&b, 5, 2);
	cr_assert_eq(b.count, 0); /* and none of these orders is an unknown one */
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_executed), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_cancelled), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_replaced), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_deleted), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 0);
	execute(&b, 9, 1, 10, 0, 0); /* not named: it may be one of ours or not */
	cr_assert_eq(b.count, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unnamed_messages), 1);
	add(&b, 6, 3, 'B', 100, 10000, NULL);
	cr_assert_eq(b.count, 2);
	bench_close(&b);
}

/* ---- books that are known, and those that are not ---- */

Test(itch50_book, books_are_good_from_the_start_of_messages_to_a_gap, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	cr_assert_eq(flags_of_next_add(&b, 5), BAD); /* begun in mid-day */
	event(&b, 'Q');
	cr_assert_eq(flags_of_next_add(&b, 5), BAD);
	size_t before = b.count;
	event(&b, 'O'); /* nothing is older than this: what was there is void */
	const struct tw_msg_book_clear *c = bench_msg(&b, before, TW_MSG_BOOK_CLEAR);
	assert_head(&c->head, 5, END);
	cr_assert_eq(c->side, TW_SIDE_NONE);
	cr_assert_eq(b.count, before + 2);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 0);
	cr_assert_eq(flags_of_next_add(&b, 5), END);
	tw_feed_gap(b.feed, 3);
	cr_assert_eq(bench_counter(&b, TW_FH_gaps), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_missing_messages), 3);
	cr_assert_eq(flags_of_next_add(&b, 5), BAD);
	cr_assert_eq(flags_of_next_add(&b, 6), BAD);
	bench_close(&b);
}

Test(itch50_book, a_new_session_forgets_orders_and_codes, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	event(&b, 'O');
	add(&b, 5, 1, 'B', 100, 10000, NULL);
	add(&b, 6, 2, 'B', 100, 10000, NULL);
	say(&b, "59 0007 0000 1f1acedb172e 4e45574320202020 30"); /* no order ever */
	tw_feed_session_changed(b.feed);
	size_t before = b.count;
	next_seq = 1;
	/* code 5 is another symbol today */
	say(&b, "41 0005 0000 1f1acedb172e 0000000000000001 42 00000064 564f4f2020202020 000d55ac");
	uint32_t cleared = 0;
	for (size_t i = before; i < before + 2; i++) {
		const struct tw_msg_book_clear *c = bench_msg(&b, i, TW_MSG_BOOK_CLEAR);
		cr_assert_eq(c->head.flags, BAD);
		cleared |= 1u << c->head.instrument_id;
	}
	cr_assert_eq(cleared, 1u << 5 | 1u << 6);
	const struct tw_msg_instrument_definition *d =
		bench_msg(&b, before + 2, TW_MSG_INSTRUMENT_DEFINITION);
	cr_assert_str_eq(d->symbol, "VOO");
	cr_assert_eq(d->head.instrument_id, 5);
	cr_assert_eq(d->action, TW_DEF_ADD);
	const struct tw_msg_order_add *a = bench_msg(&b, before + 3, TW_MSG_ORDER_ADD);
	assert_head(&a->head, 5, BAD);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_orders_repeated), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments), 1);
	bench_close(&b);
}

Test(itch50_book, a_full_table_sends_what_it_follows_alone, .timeout = 60)
{
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .max_orders = 3 });
	event(&b, 'O');
	for (uint64_t ref = 1; ref <= 3; ref++) {
		add(&b, 5, ref, 'B', 100, 10000, NULL);
	}
	size_t before = b.count;
	add(&b, 6, 4, 'B', 100, 10000, NULL);
	cr_assert_eq(b.count, before);
	cr_assert_eq(bench_counter(&b, TW_FH_orders_refused), 1);
	del(&b, 6, 4); /* never sent, so nothing to take back */
	cr_assert_eq(b.count, before);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_deleted), 1);
	replace(&b, 5, 1, 10, 50, 10000); /* one for one still goes */
	(void)last(&b, TW_MSG_ORDER_REPLACE);
	del(&b, 5, 10);
	cr_assert_eq(flags_of_next_add(&b, 6), BAD); /* its book lacks one */
	const struct tw_msg_order_delete *d = NULL;
	del(&b, 5, 2);
	d = last(&b, TW_MSG_ORDER_DELETE);
	cr_assert_eq(d->head.flags, END); /* this one does not */
	bench_close(&b);
}

Test(itch50_book, what_contradicts_itself_marks_the_book, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	event(&b, 'O');
	uint16_t locate = 1;

	add(&b, locate, 1, 'B', 100, 10000, NULL);
	size_t before = b.count;
	add(&b, locate, 1, 'S', 200, 20000, NULL); /* a number that lives */
	cr_assert_eq(b.count, before);
	cr_assert_eq(bench_counter(&b, TW_FH_orders_repeated), 1);
	cr_assert_eq(flags_of_next_add(&b, locate), BAD);

	add(&b, ++locate, 2, 'B', 100, 10000, NULL);
	execute(&b, locate, 2, 101, 0,
		0); /* more than there is: the trade stands, the order is gone */
	const struct tw_msg_order_execute *e = last(&b, TW_MSG_ORDER_EXECUTE);
	assert_head(&e->head, locate, PRINTED | TW_MSG_BOOK_BAD);
	cr_assert_eq(e->qty, 101);
	cr_assert_eq(e->remaining_qty, 0);
	cr_assert_eq(flags_of_next_add(&b, locate), BAD);

	add(&b, ++locate, 3, 'B', 100, 10000, NULL);
	cancel(&b, locate, 3, 101);
	const struct tw_msg_order_delete *d = last(&b, TW_MSG_ORDER_DELETE);
	assert_head(&d->head, locate, BAD);

	add(&b, ++locate, 4, 'B', 100, 10000, NULL);
	add(&b, locate, 5, 'B', 100, 10000, NULL);
	replace(&b, locate, 4, 5, 100,
		10000); /* by a number that lives: the old one is gone for certain */
	d = last(&b, TW_MSG_ORDER_DELETE);
	assert_head(&d->head, locate, BAD);
	cr_assert_eq(d->order_id, 4);
	replace(&b, locate, 5, 6, 0, 10000); /* by nothing */
	d = last(&b, TW_MSG_ORDER_DELETE);
	cr_assert_eq(d->order_id, 5);

	before = b.count;
	add(&b, ++locate, 7, 'X', 100, 10000, NULL); /* no side */
	add(&b, locate, 8, 'B', 0, 10000, NULL);     /* no shares */
	cr_assert_eq(b.count, before);
	cr_assert_eq(flags_of_next_add(&b, locate), BAD);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 6);

	event(&b, 'O'); /* a new day: all is forgiven */
	cr_assert_eq(flags_of_next_add(&b, locate), END);
	bench_close(&b);
}

Test(itch50_book, a_replacement_by_itself, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	event(&b, 'O');
	add(&b, 5, 4, 'B', 100, 10000, NULL);
	replace(&b, 5, 4, 4, 50, 20000);
	const struct tw_msg_order_replace *r = last(&b, TW_MSG_ORDER_REPLACE);
	assert_head(&r->head, 5, END);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 1);
	execute(&b, 5, 4, 50, 0, 0);
	const struct tw_msg_order_execute *e = last(&b, TW_MSG_ORDER_EXECUTE);
	cr_assert_eq(e->remaining_qty, 0);
	bench_close(&b);
}
