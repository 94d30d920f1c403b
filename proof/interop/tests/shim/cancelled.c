// Threads that are cancelled (pthread_cancel) while they wait in calls of sockets, or before they call them, in the ways that POSIX has for it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ACCEPT, READ, READV, RECV, RECVFROM, RECVMSG, RECVMMSG, POLL, PPOLL, SELECT, EPOLL, EPOLL_PIPE, WRITE, SEND, SENDMSG, LINGER, CONNECT, CLOSE, CALLS };
static const char *const NAMES[] = {"accept", "read", "readv", "recv", "recvfrom", "recvmsg", "recvmmsg", "poll", "ppoll", "select", "epoll_wait",
                                    "epoll_wait of a pipe", "write", "send", "sendmsg", "close that lingers", "connect", "close"};
enum { WAITING, LONG, PENDING, AT_ONCE, NOT_NOW, WAYS };
static const char *const HOW[] = {"while it waits", "after long", "before", "at once", "not as long as it does not want"};

static struct sockaddr_in where;
static int listener, client, server, datagrams, set, pipes;
static char text[1 << 20];
static volatile int cleaned, went_on;

struct task {
    int call, way;
};

static void clean(void *_) { cleaned = 1; }

static void call(int which) {
    struct iovec piece = {text, sizeof text};
    struct mmsghdr many = {{.msg_iov = &piece, .msg_iovlen = 1}};
    struct pollfd entry = {client, POLLIN, 0};
    struct epoll_event event;
    fd_set fds;
    FD_ZERO(&fds);
    FD_SET(client, &fds);
    switch (which) {
    case ACCEPT: accept(listener, 0, 0); break;
    case READ: read(client, text, 9); break;
    case READV: readv(client, &piece, 1); break;
    case RECV: recv(client, text, 9, 0); break;
    case RECVFROM: recvfrom(datagrams, text, 9, 0, 0, 0); break;
    case RECVMSG: recvmsg(client, &many.msg_hdr, 0); break;
    case RECVMMSG: recvmmsg(datagrams, &many, 1, 0, 0); break;
    case POLL: poll(&entry, 1, -1); break;
    case PPOLL: ppoll(&entry, 1, 0, 0); break;
    case SELECT: select(client + 1, &fds, 0, 0, 0); break;
    case EPOLL: epoll_wait(set, &event, 1, -1); break;
    case EPOLL_PIPE: epoll_wait(pipes, &event, 1, -1); break;
    case WRITE: for (;;) write(server, text, sizeof text);
    case SEND: for (;;) send(server, text, sizeof text, 0);
    case SENDMSG: for (;;) sendmsg(server, &many.msg_hdr, 0);
    case LINGER: close(server); break;
    case CONNECT: connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&where, sizeof where); break;
    case CLOSE: close(dup(client)); break;
    }
}

static void *run(void *argument) {
    struct task *task = argument;
    pthread_cleanup_push(clean, 0);
    if (task->way == AT_ONCE) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    if (task->way == PENDING) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
        usleep(200000);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
    }
    if (task->way == NOT_NOW) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
    call(task->call);
    went_on = 1;
    if (task->way == NOT_NOW) pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
    for (;;) pause();
    pthread_cleanup_pop(0);
    return 0;
}

static void connection(void) {
    client = socket(AF_INET, SOCK_STREAM, 0);
    connect(client, (void *)&where, sizeof where);
    server = accept(listener, 0, 0);
}

// More than its reader takes, who does not read.
static void fill(void) {
    setsockopt(server, SOL_SOCKET, SO_LINGER, &(struct linger){1, 60}, sizeof(struct linger));
    for (int full = 0; full < 10; full++) {
        while (send(server, text, sizeof text, MSG_DONTWAIT) > 0)
            full = 0;
        usleep(10000);
    }
}

static void try(int which, int way) {
    struct task task = {which, way};
    struct epoll_event event = {EPOLLIN};
    pthread_t thread;
    void *result = 0;
    connection();
    if (which == LINGER) fill();
    epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
    cleaned = went_on = 0;
    pthread_create(&thread, 0, run, &task);
    usleep(way == LONG ? 300000 : 50000);
    pthread_cancel(thread);
    if (way == NOT_NOW) {
        usleep(50000);
        if (went_on) printf("it did not wait\n");
        send(server, "text", 4, 0);
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3;
    int late = pthread_timedjoin_np(thread, &result, &until);
    printf("%s, %s: %s%s%s\n", NAMES[which], HOW[way], late ? "NOT CANCELLED" : result == PTHREAD_CANCELED ? "cancelled" : "returned",
           cleaned ? ", cleaned up" : "", went_on ? ", was done" : "");
    fflush(stdout);
    close(client);
    close(server);
}

int main(int count, char **words) {
    struct epoll_event event = {EPOLLIN};
    socklen_t length = sizeof where;
    int ends[2];
    where.sin_family = AF_INET;
    inet_aton(words[1], &where.sin_addr);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&where, sizeof where);
    listen(listener, 5);
    datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    bind(datagrams, (void *)&where, sizeof where);
    getsockname(listener, (void *)&where, &length);
    set = epoll_create1(0);
    pipes = epoll_create1(0);
    pipe(ends);
    epoll_ctl(pipes, EPOLL_CTL_ADD, ends[0], &event);
    for (int which = 0; which < CALLS; which++) {
        if (which < CONNECT) try(which, WAITING);
        if (which < RECVFROM) try(which, LONG);
        try(which, PENDING);
    }
    try(READ, AT_ONCE);
    try(ACCEPT, AT_ONCE);
    try(RECV, NOT_NOW);
    try(POLL, NOT_NOW);
    _exit(0);
}
