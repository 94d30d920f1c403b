/* Loads the library as packetdrill does and calls each of its 32 functions once.
 *
 * The table's declaration is ours, from the interface's description. Prints "ok", or the line that failed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

struct table {
	void *u;
	void (*free)(void *);
	int (*socket)(void *, int, int, int);
	int (*bind)(void *, int, const struct sockaddr *, socklen_t);
	int (*listen)(void *, int, int);
	int (*accept)(void *, int, struct sockaddr *, socklen_t *);
	int (*connect)(void *, int, const struct sockaddr *, socklen_t);
	ssize_t (*read)(void *, int, void *, size_t);
	ssize_t (*readv)(void *, int, const struct iovec *, int);
	ssize_t (*recv)(void *, int, void *, size_t, int);
	ssize_t (*recvfrom)(void *, int, void *, size_t, int, struct sockaddr *, socklen_t *);
	ssize_t (*recvmsg)(void *, int, struct msghdr *, int);
	ssize_t (*write)(void *, int, const void *, size_t);
	ssize_t (*writev)(void *, int, const struct iovec *, int);
	ssize_t (*send)(void *, int, const void *, size_t, int);
	ssize_t (*sendto)(void *, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	ssize_t (*sendmsg)(void *, int, const struct msghdr *, int);
	int (*fcntl)(void *, int, int, ...);
	int (*ioctl)(void *, int, unsigned long, ...);
	int (*close)(void *, int);
	int (*shutdown)(void *, int, int);
	int (*getsockopt)(void *, int, int, int, void *, socklen_t *);
	int (*setsockopt)(void *, int, int, int, const void *, socklen_t);
	int (*poll)(void *, struct pollfd *, nfds_t, int);
	int (*netdev_send)(void *, const void *, size_t);
	int (*netdev_receive)(void *, void *, size_t *, long long *);
	int (*usleep)(void *, useconds_t);
	int (*gettimeofday)(void *, struct timeval *, struct timezone *);
	int (*epoll_create)(void *, int);
	int (*epoll_ctl)(void *, int, int, int, struct epoll_event *);
	int (*epoll_wait)(void *, int, struct epoll_event *, int, int);
	int (*pipe)(void *, int[2]);
	int (*splice)(void *, int, loff_t *, int, loff_t *, size_t, unsigned int);
};

#define CHECK(what)                                                            \
	do {                                                                   \
		if (!(what)) {                                                 \
			printf("line %d: %s: %s\n", __LINE__, #what,           \
			       strerror(errno));                               \
			exit(1);                                               \
		}                                                              \
	} while (0)

static struct table t;
static unsigned char packet[65536];
static uint32_t iss;
static int listener;

static uint32_t sum(uint32_t s, const unsigned char *p, size_t n)
{
	for (; n > 1; p += 2, n -= 2)
		s += p[0] << 8 | p[1];
	return n ? s + (p[0] << 8) : s;
}

static uint16_t fold(uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return ~s;
}

/* A segment from 192.0.2.1:9 to 192.168.0.9:8080. */
static void inject(unsigned char flags, uint32_t seq, uint32_t ack, const char *text)
{
	size_t n = strlen(text), total = 40 + n;
	unsigned char p[256] = {0x45, 0, total >> 8, total, 0, 0, 0x40, 0, 64, 6, 0, 0,
				192, 0, 2, 1, 192, 168, 0, 9, 0, 9, 0x1f, 0x90};
	unsigned char pseudo[12] = {192, 0, 2, 1, 192, 168, 0, 9, 0, 6, 0, 20 + n};
	uint32_t s = htonl(seq), a = htonl(ack);
	uint16_t c = fold(sum(0, p, 20));
	p[10] = c >> 8, p[11] = c;
	memcpy(p + 24, &s, 4), memcpy(p + 28, &a, 4);
	p[32] = 0x50, p[33] = flags, p[34] = 0xff, p[35] = 0xff;
	memcpy(p + 40, text, n);
	c = fold(sum(sum(0, pseudo, 12), p + 20, 20 + n));
	p[36] = c >> 8, p[37] = c;
	CHECK(t.netdev_send(t.u, p, total) == 0);
}

/* The flags of the next packet. */
static int sniff(void)
{
	size_t n = sizeof(packet);
	long long at = 0;
	CHECK(t.netdev_receive(t.u, packet, &n, &at) == 0);
	CHECK(n >= 40 && at > 0 && packet[0] == 0x45);
	return packet[33];
}

static void *blocked_accept(void *arg)
{
	struct sockaddr_in from;
	socklen_t n = sizeof(from);
	*(int *)arg = t.accept(t.u, listener, (struct sockaddr *)&from, &n);
	CHECK(n == sizeof(from) && from.sin_port == htons(9));
	return NULL;
}

static void stream(void)
{
	struct sockaddr_in here = {AF_INET, htons(8080), {inet_addr("192.168.0.9")}};
	char buf[64];
	struct iovec v = {buf, sizeof(buf)};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	pthread_t thread;
	int fd = -1, n, out[2];
	socklen_t len;
	unsigned char info[512];

	listener = t.socket(t.u, AF_INET, SOCK_STREAM, IPPROTO_TCP);
	CHECK(listener >= 0 && fcntl(listener, F_GETFD) >= 0);
	n = 1;
	CHECK(t.setsockopt(t.u, listener, SOL_SOCKET, SO_REUSEADDR, &n, sizeof(n)) == 0);
	CHECK(t.bind(t.u, listener, (struct sockaddr *)&here, sizeof(here)) == 0);
	CHECK(t.listen(t.u, listener, 1) == 0);
	CHECK(pthread_create(&thread, NULL, blocked_accept, &fd) == 0);
	usleep(30000);
	inject(TH_SYN, 100, 0, "");
	CHECK(sniff() == (TH_SYN | TH_ACK));
	memcpy(&iss, packet + 24, 4);
	iss = ntohl(iss) + 1;
	inject(TH_ACK, 101, iss, "");
	CHECK(pthread_join(thread, NULL) == 0 && fd >= 0);

	CHECK(t.fcntl(t.u, fd, F_GETFL) == O_RDWR);
	CHECK(t.fcntl(t.u, fd, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
	CHECK(t.fcntl(t.u, fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
	CHECK(t.read(t.u, fd, buf, 1) == -1 && errno == EAGAIN);
	inject(TH_ACK, 101, iss, "0123456789");
	CHECK(t.ioctl(t.u, fd, FIONREAD, &n) == 0 && n == 10);
	struct pollfd p = {fd, POLLIN, 0};
	CHECK(t.poll(t.u, &p, 1, 0) == 1 && p.revents == POLLIN);
	CHECK(t.recv(t.u, fd, buf, 2, MSG_PEEK) == 2);
	CHECK(t.read(t.u, fd, buf, 2) == 2 && !memcmp(buf, "01", 2));
	v.iov_len = 3;
	CHECK(t.readv(t.u, fd, &v, 1) == 3 && !memcmp(buf, "234", 3));
	CHECK(t.recvmsg(t.u, fd, &m, 0) == 3 && !memcmp(buf, "567", 3));
	CHECK(t.recvfrom(t.u, fd, buf, 9, 0, NULL, NULL) == 2 && !memcmp(buf, "89", 2));
	CHECK(t.write(t.u, fd, "a", 1) == 1);
	CHECK(t.writev(t.u, fd, &v, 1) == 3);
	CHECK(t.send(t.u, fd, "b", 1, 0) == 1);
	CHECK(t.sendto(t.u, fd, "c", 1, 0, NULL, 0) == 1);
	CHECK(t.sendmsg(t.u, fd, &m, 0) == 3);
	len = sizeof(info);
	CHECK(t.getsockopt(t.u, fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0 && info[0] == TCP_ESTABLISHED);

	int epoll = t.epoll_create(t.u, 1);
	struct epoll_event e = {EPOLLOUT, {.u64 = 5}};
	CHECK(t.epoll_ctl(t.u, epoll, EPOLL_CTL_ADD, fd, &e) == 0);
	CHECK(t.epoll_wait(t.u, epoll, &e, 1, 0) == 1 && e.data.u64 == 5);
	CHECK(t.close(t.u, epoll) == 0);
	CHECK(t.pipe(t.u, out) == 0);
	CHECK(write(out[1], "zz", 2) == 2);
	CHECK(t.splice(t.u, out[0], NULL, fd, NULL, 2, 0) == 2);
	close(out[0]), close(out[1]);
	CHECK(t.shutdown(t.u, fd, SHUT_WR) == 0);
	CHECK(t.close(t.u, fd) == 0);
	/* The listener stays open: packetdrill closes with close(2) what a script leaves. */
	CHECK(close(listener) == 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in there = {AF_INET, htons(80), {inet_addr("192.0.2.1")}};
	struct timeval a, b;
	void *lib = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | RTLD_DEEPBIND) : NULL;
	if (!lib)
		return printf("%s\n", dlerror()), 1;
	void (*init)(const char *, struct table *) = dlsym(lib, "packetdrill_interface_init");
	CHECK(init);
	init(argv[2], &t);
	for (void **p = (void **)&t; p < (void **)(&t + 1); p++)
		CHECK(*p);
	CHECK(t.gettimeofday(t.u, &a, NULL) == 0);
	CHECK(t.usleep(t.u, 90000000) == 0);
	CHECK(t.gettimeofday(t.u, &b, NULL) == 0);
	CHECK(b.tv_sec - a.tv_sec == 90);
	stream();
	int fd = t.socket(t.u, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(t.connect(t.u, fd, (struct sockaddr *)&there, sizeof(there)) == -1 && errno == EINPROGRESS);
	t.free(t.u);
	dlclose(lib);
	puts("ok");
	return 0;
}
