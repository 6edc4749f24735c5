/* What both ends of repair over TCP share: addresses and socket options. */
#ifndef TW_FABRIC_TCP_TCP_H
#define TW_FABRIC_TCP_TCP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "tidewire/error.h"

#define TW_TCP_FMT        TW_IPV4_FMT ":%u"
#define TW_TCP_ARGS(a, p) TW_IPV4_ARGS(a), (p)

/* A non-blocking stream socket, close-on-exec; -1 with errno. */
int tw_tcp_socket(void);
/* No delay, keep-alive, class; what the kernel refuses (a priority over 6 without privilege) is left as it
 * is: repair works without. */
void tw_tcp_tune(int fd, uint8_t tos, uint8_t priority);
/* As connect(2): 0, or -1 with errno (EINPROGRESS). */
int tw_tcp_connect(int fd, uint32_t addr, uint16_t port);
/* Binds and listens; *port as bound. */
int tw_tcp_listen(int fd, uint32_t addr, uint16_t *port, struct tw_error *err) TW_MUST_USE;
/* As accept4(2), non-blocking and close-on-exec; -1 with errno. */
int tw_tcp_accept(int fd, uint32_t *addr, uint16_t *port);
/* As recv(2) and send(2) without signals, interruptions taken care of; TW_TCP_AGAIN: would block. */
#define TW_TCP_AGAIN (-1)
#define TW_TCP_LOST  (-2)
int tw_tcp_recv(int fd, void *data, uint32_t len_bytes); /* end of stream is TW_TCP_LOST */
int tw_tcp_send(int fd, const void *data, uint32_t len_bytes);

/* Milliseconds to wait from now until `at_ns`, rounded up, for epoll_wait(2); UINT64_MAX: -1. */
int tw_tcp_wait_ms(uint64_t now_ns, uint64_t at_ns);

#endif
