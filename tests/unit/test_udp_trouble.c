/* The `udp` transport when things go wrong: a kernel that refuses sends, damaged and foreign frames,
 * what cannot be opened.  sendmmsg() is wrapped, so that a send can fail as a full or broken device
 * makes it. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/udp/roce.h"
#include "tests/support/udp_bed.h"

int __real_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags);
int __wrap_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags);

/* What the wrapped call does to sends to `group` (0: nothing). */
static struct {
	uint32_t group;
	int error;           /* what a send fails with */
	bool gso_only;       /* sends of one datagram go through */
	unsigned int pass;   /* sends that go through first, one in each call */
	unsigned int fails;  /* then so many fail */
	unsigned int failed; /* have failed */
	unsigned int gso;    /* GSO sends seen */
	/* sends that went through to `counted`, and the shortest of them */
	uint32_t counted;
	unsigned int sends;
	size_t shortest_bytes;
} trouble;

static void count_sends(const struct mmsghdr *msgs, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++, trouble.sends++) {
		if (trouble.sends == 0 || msgs[i].msg_len < trouble.shortest_bytes) {
			trouble.shortest_bytes = msgs[i].msg_len;
		}
	}
}

int __wrap_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags)
{
	cr_assert_eq(flags, MSG_DONTWAIT, "a send must never block");
	struct sockaddr_in to;
	memcpy(&to, msgs->msg_hdr.msg_name, sizeof(to));
	const bool gso = msgs->msg_hdr.msg_controllen != 0;
	trouble.gso += gso;
	if (ntohl(to.sin_addr.s_addr) == trouble.counted) {
		const int sent = __real_sendmmsg(fd, msgs, n, flags);
		count_sends(msgs, sent > 0 ? (unsigned int)sent : 0);
		return sent;
	}
	if (ntohl(to.sin_addr.s_addr) != trouble.group || (trouble.gso_only && !gso)) {
		return __real_sendmmsg(fd, msgs, n, flags);
	}
	if (trouble.pass > 0) {
		trouble.pass--;
		return __real_sendmmsg(fd, msgs, 1, flags);
	}
	if (trouble.failed < trouble.fails) {
		trouble.failed++;
		errno = trouble.error;
		return -1;
	}
	return __real_sendmmsg(fd, msgs, n, flags);
}

static void equal_lengths(uint32_t *lens, uint32_t n, uint32_t len_bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		lens[i] = len_bytes;
	}
}

/* A kernel that refuses GSO: once, then the line does without, and nothing is lost or doubled. */
Test(udp_trouble, refused_gso_falls_back_for_good, .timeout = 60)
{
	static const int errors[] = { EIO, EINVAL };
	for (unsigned int e = 0; e < 2; e++) {
		struct tw_fabric_conf conf = udp_bed_conf();
		conf.gso = TW_GSO_ON;
		const uint32_t group = udp_bed_group();
		struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
		struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
		uint32_t lens[96];
		equal_lengths(lens, 96, 1024);
		memset(&trouble, 0, sizeof(trouble));
		udp_bed_post(tx, lens, 64, 64);
		udp_bed_expect(rx, 0, lens, 64, TW_RX_BATCH, UDP_BED_LINE_A);
		cr_assert_gt(trouble.gso, 0);
		memset(&trouble, 0, sizeof(trouble));
		trouble.group = group;
		trouble.error = errors[e];
		trouble.gso_only = true;
		trouble.fails = 1000;
		udp_bed_post(tx, lens, 96, 64);
		udp_bed_expect(rx, 0, lens, 96, TW_RX_BATCH, UDP_BED_LINE_A);
		cr_assert_eq(trouble.failed, 1);
		cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_datagrams), 160ull * (e + 1));
		cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_errors), 0);
		cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_skipped), 0);
		tw_tx_close(tx);
		tw_rx_close(rx);
	}
}

/* No send of a full batch carries less than another. */
Test(udp_trouble, a_full_batch_is_full_sends, .timeout = 60)
{
	const uint32_t mtus[] = { 256, 1024, 1408, 2048, 4096 };
	for (unsigned int m = 0; m < sizeof(mtus) / sizeof(mtus[0]); m++) {
		struct tw_fabric_conf conf = udp_bed_conf();
		conf.gso = TW_GSO_ON;
		conf.mtu_bytes = mtus[m];
		const uint32_t group = udp_bed_group();
		struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
		struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
		const unsigned int batch = tw_tx_batch(tx);
		cr_assert(batch > TW_TX_BATCH / 2 && batch <= TW_TX_BATCH, "%u", batch);
		uint32_t lens[TW_TX_BATCH];
		equal_lengths(lens, batch, mtus[m]);
		memset(&trouble, 0, sizeof(trouble));
		trouble.counted = group;
		udp_bed_post(tx, lens, batch, batch);
		udp_bed_expect(rx, 0, lens, batch, TW_RX_BATCH, UDP_BED_LINE_A);
		cr_assert_eq(trouble.sends * trouble.shortest_bytes,
			     (size_t)batch * (mtus[m] + TW_ROCE_OVERHEAD_BYTES), "MTU %u", mtus[m]);
		tw_tx_close(tx);
		conf.gso = TW_GSO_OFF;
		tx = udp_bed_open_tx(&conf, group, 0);
		cr_assert_eq(tw_tx_batch(tx), TW_TX_BATCH);
		tw_tx_close(tx);
		tw_rx_close(rx);
	}
}

/* A line whose queue is full skips what is left of the post; the other line gets everything. */
Test(udp_trouble, a_full_line_skips, .timeout = 60)
{
	static const int errors[] = { EAGAIN, ENOBUFS };
	for (unsigned int e = 0; e < 2; e++) {
		struct tw_fabric_conf conf = udp_bed_conf();
		conf.gso = TW_GSO_OFF;
		const uint32_t groups[2] = { udp_bed_group(), udp_bed_group() };
		struct tw_rx *rx = udp_bed_open_rx(&conf, groups, (const uint8_t[]){ 0, 1 }, 2, 0);
		struct tw_tx *tx = udp_bed_open_tx(&conf, groups[0], groups[1]);
		uint32_t lens[40];
		equal_lengths(lens, 40, 512);
		memset(&trouble, 0, sizeof(trouble));
		trouble.group = groups[0];
		trouble.error = errors[e];
		trouble.pass = 3;
		trouble.fails = 1;
		udp_bed_clear_counters();
		udp_bed_post(tx, lens, 40, 40);
		udp_bed_expect(rx, 0, lens, 3, TW_RX_BATCH, UDP_BED_LINE_A);
		udp_bed_expect(rx, 1, lens, 40, TW_RX_BATCH, UDP_BED_LINE_B);
		cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_datagrams), 3);
		cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_skipped), 37);
		cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_errors), 0);
		cr_assert_eq(udp_bed_pub_value(1, TW_PUB_LINE_datagrams), 40);
		cr_assert_eq(udp_bed_pub_value(1, TW_PUB_LINE_skipped), 0);
		/* once there is room again the line goes on */
		udp_bed_post(tx, lens, 40, 40);
		udp_bed_expect(rx, 0, lens, 40, TW_RX_BATCH, UDP_BED_LINE_A);
		tw_tx_close(tx);
		tw_rx_close(rx);
	}
}

/* An error that was pending on the socket spoils one call, not the datagram. */
Test(udp_trouble, a_pending_error_costs_nothing, .timeout = 60)
{
	struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
	uint32_t lens[10];
	equal_lengths(lens, 10, 256);
	trouble.group = group;
	trouble.error = ECONNREFUSED;
	trouble.fails = 1;
	udp_bed_post(tx, lens, 10, 10);
	udp_bed_expect(rx, 0, lens, 10, TW_RX_BATCH, UDP_BED_LINE_A);
	cr_assert_eq(trouble.failed, 1);
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_datagrams), 10);
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_errors), 0);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* A datagram that cannot be sent is counted, and those behind it are tried. */
Test(udp_trouble, errors_are_counted_one_by_one, .timeout = 60)
{
	struct tw_fabric_conf conf = udp_bed_conf();
	conf.gso = TW_GSO_OFF;
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
	uint32_t lens[10];
	equal_lengths(lens, 10, 256);
	trouble.group = group;
	trouble.error = EPERM;
	trouble.pass = 2;
	trouble.fails = 5; /* datagrams 2 and 3, and the first try of 4 */
	udp_bed_post(tx, lens, 10, 10);
	struct tw_rx_dgram out[TW_RX_BATCH];
	for (uint32_t seq = 0; seq < 10;) {
		const unsigned int n = udp_bed_poll(rx, 0, out, TW_RX_BATCH);
		for (unsigned int i = 0; i < n; i++, seq++) {
			seq += seq == 2 ? 2 : 0;
			udp_bed_check(&out[i], 256, seq, UDP_BED_LINE_A);
		}
	}
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_datagrams), 8);
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_errors), 2);
	cr_assert_eq(tw_tx_completed(tx, 0), 10);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* A plain socket that writes frames of its own making. */
struct raw {
	int fd;
	struct sockaddr_in to;
	struct tw_roce_flow flow;
	struct tw_roce_tables tables;
};

static void open_raw(struct raw *raw, uint32_t group, int pmtu_discover)
{
	memset(raw, 0, sizeof(*raw));
	raw->fd = socket(AF_INET, SOCK_DGRAM, 0);
	cr_assert_geq(raw->fd, 0);
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(UDP_BED_LINE_A) };
	socklen_t len = sizeof(sin);
	cr_assert_eq(bind(raw->fd, (struct sockaddr *)&sin, len), 0);
	cr_assert_eq(getsockname(raw->fd, (struct sockaddr *)&sin, &len), 0);
	cr_assert_eq(setsockopt(raw->fd, IPPROTO_IP, IP_MULTICAST_IF, &sin.sin_addr,
				sizeof(sin.sin_addr)),
		     0);
	cr_assert_eq(setsockopt(raw->fd, IPPROTO_IP, IP_MTU_DISCOVER, &pmtu_discover,
				sizeof(pmtu_discover)),
		     0);
	raw->to = (struct sockaddr_in){ .sin_family = AF_INET,
					.sin_port = htons(TW_ROCE_PORT),
					.sin_addr.s_addr = htonl(group) };
	tw_roce_tables_init(&raw->tables);
	tw_roce_sender_init(&raw->flow, UDP_BED_LINE_A, ntohs(sin.sin_port), group, 42);
}

static uint32_t build(struct raw *raw, uint8_t *frame, uint32_t len_bytes, uint32_t seq)
{
	udp_bed_fill(frame + TW_ROCE_HDR_BYTES, len_bytes, seq);
	tw_roce_seal(&raw->flow, &raw->tables, len_bytes,
		     raw->tables.crc32->of(0, frame + TW_ROCE_HDR_BYTES, len_bytes), 0, frame,
		     frame + TW_ROCE_HDR_BYTES + len_bytes);
	return len_bytes + TW_ROCE_OVERHEAD_BYTES;
}

static void send_raw(struct raw *raw, const uint8_t *frame, uint32_t frame_bytes)
{
	cr_assert_eq(sendto(raw->fd, frame, frame_bytes, 0, (struct sockaddr *)&raw->to,
			    sizeof(raw->to)),
		     (ssize_t)frame_bytes);
}

Test(udp_trouble, damaged_and_foreign_frames_are_counted, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct raw raw;
	open_raw(&raw, group, IP_PMTUDISC_DO);
	static uint8_t frame[2048];

	/* every byte of the datagram and of the ICRC once */
	const uint32_t len_bytes = 96;
	for (uint32_t at = TW_ROCE_HDR_BYTES; at < len_bytes + TW_ROCE_OVERHEAD_BYTES; at++) {
		const uint32_t frame_bytes = build(&raw, frame, len_bytes, at);
		frame[at] ^= 0x41;
		send_raw(&raw, frame, frame_bytes);
	}
	build(&raw, frame, len_bytes, 0);
	frame[0] = 0x04; /* RC SEND */
	send_raw(&raw, frame, len_bytes + TW_ROCE_OVERHEAD_BYTES);
	build(&raw, frame, len_bytes, 0);
	frame[15] ^= 1; /* Q_Key */
	send_raw(&raw, frame, len_bytes + TW_ROCE_OVERHEAD_BYTES);
	send_raw(&raw, frame, 0);
	send_raw(&raw, frame, 23);
	send_raw(&raw, frame, build(&raw, frame, UDP_BED_MTU + 4, 0));
	/* and one that is whole comes through behind them */
	send_raw(&raw, frame, build(&raw, frame, len_bytes, 0));
	udp_bed_expect(rx, 0, &len_bytes, 1, TW_RX_BATCH, UDP_BED_LINE_A);
	cr_assert_eq(udp_bed_sub_value(0, TW_SUB_LINE_icrc_bad), len_bytes + TW_ROCE_ICRC_BYTES);
	cr_assert_eq(udp_bed_sub_value(0, TW_SUB_LINE_foreign_frames), 5);
	close(raw.fd);
	tw_rx_close(rx);
}

/* 0 from a poll says that the queue is empty: bad frames in front of a good one must not say so. */
Test(udp_trouble, one_poll_reads_past_bad_frames, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct raw raw;
	open_raw(&raw, group, IP_PMTUDISC_DO);
	static uint8_t frame[2048];
	const uint32_t len_bytes = 96;
	for (uint32_t i = 0; i < 40; i++) { /* more than one recvmmsg takes */
		const uint32_t frame_bytes = build(&raw, frame, len_bytes, i);
		frame[TW_ROCE_HDR_BYTES + i] ^= 0x41;
		send_raw(&raw, frame, frame_bytes);
	}
	send_raw(&raw, frame, build(&raw, frame, len_bytes, 0));
	struct tw_rx_dgram out;
	cr_assert_eq(tw_rx_poll(rx, 0, &out, 1), 1);
	udp_bed_check(&out, len_bytes, 0, UDP_BED_LINE_A);
	close(raw.fd);
	tw_rx_close(rx);
}

/* An ICRC that counts with DF clear is not explained by an identification. */
Test(udp_trouble, frames_without_df_are_refused, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct raw without_df, with_df;
	open_raw(&without_df, group, IP_PMTUDISC_DONT);
	open_raw(&with_df, group, IP_PMTUDISC_DO);
	without_df.flow.image[8 + 6] = 0;
	tw_roce_flow_changed(&without_df.flow);
	static uint8_t frame[2048];
	send_raw(&without_df, frame, build(&without_df, frame, 64, 9));
	send_raw(&with_df, frame, build(&with_df, frame, 64, 0));
	udp_bed_expect(rx, 0, (const uint32_t[]){ 64 }, 1, TW_RX_BATCH, UDP_BED_LINE_A);
	cr_assert_eq(udp_bed_sub_value(0, TW_SUB_LINE_icrc_bad), 1);
	close(without_df.fd);
	close(with_df.fd);
	tw_rx_close(rx);
}

/* A GSO send in which one segment is damaged: just that one is lost, the others keep their numbers. */
Test(udp_trouble, one_damaged_segment_of_a_run, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct raw raw;
	open_raw(&raw, group, IP_PMTUDISC_DO);
	static uint8_t run[10 * (256 + TW_ROCE_OVERHEAD_BYTES)];
	const uint32_t step = 256 + TW_ROCE_OVERHEAD_BYTES;
	for (uint32_t i = 0; i < 10; i++) {
		uint8_t *frame = run + (size_t)i * step;
		udp_bed_fill(frame + TW_ROCE_HDR_BYTES, 256, i);
		tw_roce_seal(&raw.flow, &raw.tables, 256,
			     raw.tables.crc32->of(0, frame + TW_ROCE_HDR_BYTES, 256), (uint16_t)i,
			     frame, frame + step - TW_ROCE_ICRC_BYTES);
	}
	run[4 * step + 100] ^= 0x10;
	const int segment_bytes = (int)step;
	cr_assert_eq(
		setsockopt(raw.fd, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes)),
		0);
	send_raw(&raw, run, sizeof(run));
	struct tw_rx_dgram out[TW_RX_BATCH];
	for (uint32_t seq = 0; seq < 10;) {
		const unsigned int n = udp_bed_poll(rx, 0, out, TW_RX_BATCH);
		for (unsigned int k = 0; k < n; k++, seq++) {
			seq += seq == 4;
			udp_bed_check(&out[k], 256, seq, UDP_BED_LINE_A);
		}
	}
	cr_assert_eq(udp_bed_sub_value(0, TW_SUB_LINE_icrc_bad), 1);
	close(raw.fd);
	tw_rx_close(rx);
}

static void expect_rx_error(const struct tw_fabric_conf *conf, uint32_t group, int code,
			    const char *text)
{
	const struct tw_rx_endpoint ep = { .group = group, .counters = udp_bed_sub_counters(0) };
	struct tw_rx *rx = (void *)&rx;
	struct tw_error err = { .code = 0 };
	cr_assert_eq(tw_udp_rx_open(&rx, conf, &ep, 1, &err), code, "%s", err.text);
	cr_assert_null(rx);
	cr_assert_eq(err.code, code);
	cr_assert_not_null(strstr(err.text, text), "%s", err.text);
}

static void expect_tx_error(const struct tw_fabric_conf *conf, uint32_t group, int code,
			    const char *text)
{
	const struct tw_tx_endpoint ep = { .groups = { group, 0 },
					   .counters = { udp_bed_pub_counters(0),
							 udp_bed_pub_counters(1) } };
	struct tw_tx *tx = (void *)&tx;
	struct tw_error err = { .code = 0 };
	cr_assert_eq(tw_udp_tx_open(&tx, conf, &ep, 1, &err), code, "%s", err.text);
	cr_assert_null(tx);
	cr_assert_not_null(strstr(err.text, text), "%s", err.text);
}

Test(udp_trouble, what_cannot_be_opened, .timeout = 60)
{
	struct tw_fabric_conf conf = udp_bed_conf();
	expect_rx_error(&conf, 0x0a000001, TW_EARG, "10.0.0.1: line 0: not a multicast address");
	expect_tx_error(&conf, 0x0a000001, TW_EARG, "10.0.0.1: not a multicast address");
	conf.lines[0].address = 0xc0000201; /* 192.0.2.1, documentation */
	expect_rx_error(&conf, udp_bed_group(), TW_ECONFIG, "192.0.2.1");
	expect_tx_error(&conf, udp_bed_group(), TW_ECONFIG, "192.0.2.1");
	conf = udp_bed_conf();
	conf.mtu_bytes = 1022;
	expect_rx_error(&conf, udp_bed_group(), TW_ECONFIG, "1022");
	conf.mtu_bytes = 8192;
	expect_tx_error(&conf, udp_bed_group(), TW_ECONFIG, "8192");
	tw_rx_close(NULL);
	tw_tx_close(NULL);
}

/* A network of our own, in which ports may be taken and interfaces changed. */
static void enter_own_network(void)
{
	if (unshare(CLONE_NEWNET) != 0) {
		cr_skip_test("needs a network namespace: unshare: %s", strerror(errno));
	}
}

static void set_lo(int mtu_bytes)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	cr_assert_geq(fd, 0);
	struct ifreq req;
	memset(&req, 0, sizeof(req));
	memcpy(req.ifr_name, "lo", 3);
	req.ifr_flags = IFF_UP;
	cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &req), 0);
	req.ifr_mtu = mtu_bytes;
	cr_assert_eq(ioctl(fd, SIOCSIFMTU, &req), 0);
	close(fd);
}

Test(udp_trouble, a_taken_port_names_rdma_rxe, .timeout = 60)
{
	enter_own_network();
	set_lo(65536);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	const struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(TW_ROCE_PORT) };
	cr_assert_eq(bind(fd, (const struct sockaddr *)&sin, sizeof(sin)), 0);
	const struct tw_fabric_conf conf = udp_bed_conf();
	expect_rx_error(&conf, udp_bed_group(), TW_EBUSY, "modprobe -r rdma_rxe");
	close(fd);
	tw_rx_close(udp_bed_open_rx_one(&conf, udp_bed_group()));
}

Test(udp_trouble, mtu_must_fit_the_interface, .timeout = 60)
{
	enter_own_network();
	set_lo(1075);
	const struct tw_fabric_conf conf = udp_bed_conf();
	expect_rx_error(&conf, udp_bed_group(), TW_ECONFIG, "interface MTU of 1076");
	expect_tx_error(&conf, udp_bed_group(), TW_ECONFIG, "the interface has 1075");
	set_lo(1076);
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
	uint32_t lens[20];
	for (unsigned int i = 0; i < 20; i++) {
		lens[i] = conf.mtu_bytes;
	}
	udp_bed_post(tx, lens, 20, 10);
	udp_bed_expect(rx, 0, lens, 20, TW_RX_BATCH, UDP_BED_LINE_A);
	tw_tx_close(tx);
	tw_rx_close(rx);
}
