// Lives of threads that share sockets, drawn by lot: some of them sleep in calls while another one does something to what they wait for. Each
// life is a process. It tells what was called, who came back, with what and when (at once, with which event, never), and what was left then.
//
// threads_lives HOST FIRST COUNT KIND
//
// Kinds: `streams`, `listeners` (and who connects), `sets`, `datagrams`.
//
// What is not determined in Linux either is not drawn: who takes and who only looks do not wait for the same text, how much of a long text
// was taken is not told, and of two who sleep in the same call it is told what they came back with, not who with what.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPERS = 3, LONG = 8 << 20, AT_A_TIME = 8 };
enum call { RECV, WHOLE, PEEK, LOW, READ, READV, RECVMSG, RECVMMSG, SPLICE, SEND, SENDMSG, WRITE, SENDFILE, SPLICE_OUT, CLOSE, POLL, PPOLL, SELECT,
            PSELECT, EPOLL, PWAIT2, ACCEPT, ACCEPT4, CONNECT, ROOM, CALLS };
static const char *const CALL[] = {"recv", "recv of all", "recv that looks", "recv of 8", "read", "readv", "recvmsg", "recvmmsg", "splice", "send",
                                   "sendmsg", "write", "sendfile", "splice out", "close that lingers", "poll", "ppoll", "select", "pselect",
                                   "epoll_wait", "epoll_pwait2", "accept", "accept4", "connect", "poll for room"};

struct sleeper {
    enum call call;
    int fd, set;
    pthread_t thread;
    long result;
    int error;
    volatile int is_over, is_told, was_cancelled;
    int first;
};

static struct sleeper sleepers[SLEEPERS];
static int count, a = -1, b = -1, set = -1, other[2] = {-1, -1}, pipes[2], file, listener = -1, has_peer, is_datagram, is_closed, is_full, is_shut, is_at_edges;
static struct sockaddr_in where, near_b;
static double patience = 1;
static unsigned long lot;
static const char *life_name, *own_path;

// The draw.

static unsigned draw(unsigned below) {
    lot ^= lot << 13;
    lot ^= lot >> 7;
    lot ^= lot << 17;
    return (lot >> 11) % below;
}

#define ONE_OF(...) ((const int[]){__VA_ARGS__}[draw(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))])

static void rest(int milliseconds) {
    struct timespec time = {0, (long)(milliseconds * patience) * 1000000L};
    time.tv_sec = time.tv_nsec / 1000000000L;
    time.tv_nsec %= 1000000000L;
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
        ;
}

// What is told.

static void say(const char *format, ...) {
    char line[600];
    int begun = snprintf(line, sizeof line, "%s. ", life_name);
    va_list rest;
    va_start(rest, format);
    begun += vsnprintf(line + begun, sizeof line - begun - 1, format, rest);
    va_end(rest);
    line[begun++] = '\n';
    if (write(1, line, begun) != begun)
        _exit(3);
}

static const char *shown(long result) {
    static char text[8][40];
    static int at;
    char *it = text[at++ % 8];
    if (result == -1)
        snprintf(it, 40, "%s", strerrorname_np(errno) ?: "?");
    else
        snprintf(it, 40, "%ld", result);
    return it;
}

static void events_of(int events, char *text) {
    static const char *const names[] = {"IN", "PRI", "OUT", "ERR", "HUP", "NVAL"};
    *text = 0;
    for (int bit = 0; bit < 6; bit++)
        if (events & 1 << bit)
            strcat(strcat(text, "|"), names[bit]);
    if (events & POLLRDHUP)
        strcat(text, "|RDHUP");
}

// Who sleeps.

static void cancelled(void *of) {
    struct sleeper *it = of;
    it->was_cancelled = 1;
    it->is_over = 1;
}

static long takes(struct sleeper *it, char *text) {
    struct iovec piece = {text, 64};
    struct mmsghdr many[2] = {{.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}}};
    struct timespec limit = {60, 0};
    long done;
    switch (it->call) {
    case RECV: return recv(it->fd, text, 64, 0);
    case WHOLE: return recv(it->fd, text, 10, MSG_WAITALL);
    case PEEK: return recv(it->fd, text, 64, MSG_PEEK);
    case LOW: return recv(it->fd, text, 64, 0);
    case READ: return read(it->fd, text, 64);
    case READV: return readv(it->fd, &piece, 1);
    case RECVMSG: return recvmsg(it->fd, &many[0].msg_hdr, 0);
    case RECVMMSG: return recvmmsg(it->fd, many, is_datagram ? 2 : 1, 0, &limit);
    case SPLICE:
        done = splice(it->fd, 0, pipes[1], 0, 64, 0);
        if (done > 0 && read(pipes[0], text, done) != done)
            _exit(4);
        return done;
    default: return -2;
    }
}

static long gives(struct sleeper *it) {
    char *text = calloc(1, LONG);
    struct iovec piece = {text, LONG};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    switch (it->call) {
    case SEND: return send(it->fd, text, LONG, MSG_NOSIGNAL);
    case SENDMSG: return sendmsg(it->fd, &message, MSG_NOSIGNAL);
    case WRITE: return write(it->fd, text, LONG);
    case SENDFILE: return sendfile(it->fd, file, 0, LONG);
    case SPLICE_OUT: return splice(pipes[0], 0, it->fd, 0, 64, 0);
    case CLOSE: return close(it->fd);
    default: return -2;
    }
}

static long looks(struct sleeper *it) {
    int wanted = it->call == ROOM ? POLLOUT : POLLIN;
    struct pollfd entry = {it->fd, wanted, 0};
    struct epoll_event event = {0};
    struct timespec limit = {60, 0};
    sigset_t mask;
    fd_set fds;
    long done;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    FD_ZERO(&fds);
    FD_SET(it->fd < 0 ? 0 : it->fd, &fds);
    switch (it->call) {
    case POLL: case ROOM: done = poll(&entry, 1, 60000); break;
    case PPOLL: done = ppoll(&entry, 1, &limit, &mask); break;
    case SELECT: return select(it->fd + 1, &fds, 0, 0, &(struct timeval){60, 0});
    case PSELECT: return pselect(it->fd + 1, &fds, 0, 0, &limit, &mask);
    case EPOLL: done = epoll_wait(it->set, &event, 1, 60000); break;
    case PWAIT2: done = epoll_pwait2(it->set, &event, 1, &limit, &mask); break;
    default: return -2;
    }
    it->first = entry.revents | event.events;
    return done;
}

static void *sleeps(void *of) {
    struct sleeper *it = of;
    char text[64] = {0};
    pthread_cleanup_push(cancelled, it);
    switch (it->call) {
    case RECV ... SPLICE:
        it->result = takes(it, text);
        it->first = text[0];
        break;
    case SEND ... CLOSE: it->result = gives(it); break;
    case ACCEPT: it->result = accept(it->fd, 0, 0); break;
    case ACCEPT4: it->result = accept4(it->fd, 0, 0, SOCK_NONBLOCK); break;
    case CONNECT: it->result = connect(it->fd, (void *)&where, sizeof where); break;
    default: it->result = looks(it);
    }
    it->error = errno;
    pthread_cleanup_pop(0);
    it->is_over = 1;
    return 0;
}

static void describe(struct sleeper *it, char *text) {
    char events[80] = "";
    if (it->was_cancelled) {
        sprintf(text, "%s cancelled", CALL[it->call]);
    } else if (it->result == -1) {
        sprintf(text, "%s %s", CALL[it->call], strerrorname_np(it->error));
    } else if (it->call >= SEND && it->call <= SENDFILE) {
        sprintf(text, "%s %s", CALL[it->call], it->result == 0 ? "none" : it->result < LONG ? "part" : "all");
    } else if (it->call == ACCEPT || it->call == ACCEPT4) {
        sprintf(text, "%s one", CALL[it->call]);
    } else if (it->call >= POLL && it->call != CONNECT) {
        events_of(it->first, events);
        sprintf(text, "%s %ld%s", CALL[it->call], it->result, events);
    } else {
        sprintf(text, "%s %ld %c", CALL[it->call], it->result, it->first ? it->first : '-');
    }
}

static int compares(const void *one, const void *two) { return strcmp(one, two); }

// Waits until nobody has come back for a while, and tells who has, and who of them sleeps still.
static void tell_returned(const char *behind, int quiet) {
    char told[SLEEPERS][120], line[500] = "";
    int asleep = 0, before = -1, now = 0, more = 0;
    while (before != now) {
        before = now;
        rest(quiet);
        now = 0;
        for (int at = 0; at < count; at++)
            now += sleepers[at].is_over;
    }
    for (int at = 0; at < count; at++) {
        struct sleeper *it = &sleepers[at];
        asleep += !it->is_over;
        if (it->is_over && !it->is_told) {
            it->is_told = 1;
            describe(it, told[more++]);
        }
    }
    qsort(told, more, sizeof told[0], compares);
    for (int at = 0; at < more; at++)
        strcat(strcat(line, "; "), told[at]);
    say("%s%s; %d asleep", behind, line, asleep);
}

static void begin(enum call call, int fd, int of_set) {
    struct sleeper *it = &sleepers[count++];
    it->call = call;
    it->fd = fd;
    it->set = of_set;
    if (pthread_create(&it->thread, 0, sleeps, it))
        _exit(5);
}

// What there is.

static void sized(int fd, int bytes) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

static int listens(struct sockaddr_in *at) {
    socklen_t length = sizeof *at;
    int it = socket(AF_INET, SOCK_STREAM, 0);
    at->sin_port = 0;
    sized(it, 65536);
    if (bind(it, (void *)at, sizeof *at) || listen(it, 8) || getsockname(it, (void *)at, &length))
        _exit(6);
    return it;
}

static void pair(int *one, int *two) {
    struct sockaddr_in at = where;
    socklen_t length = sizeof at;
    int listening = listens(&at);
    *one = socket(AF_INET, SOCK_STREAM, 0);
    sized(*one, 65536);
    if (connect(*one, (void *)&at, sizeof at) || (*two = accept(listening, 0, 0)) < 0 || getpeername(*one, (void *)&near_b, &length))
        _exit(7);
    close(listening);
}

static void datagram_pair(int *one, int *two) {
    struct sockaddr_in at[2] = {where, where};
    socklen_t length = sizeof at[0];
    int *fds[2] = {one, two};
    for (int nth = 0; nth < 2; nth++) {
        *fds[nth] = socket(AF_INET, SOCK_DGRAM, 0);
        at[nth].sin_port = 0;
        if (bind(*fds[nth], (void *)&at[nth], length) || getsockname(*fds[nth], (void *)&at[nth], &length))
            _exit(8);
    }
    if (connect(*one, (void *)&at[1], length) || connect(*two, (void *)&at[0], length))
        _exit(8);
    near_b = at[1];
}

static void fill(int fd) {
    static char text[65536];
    for (int quiet = 0; quiet < 10;) {
        if (send(fd, text, 4096, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
            quiet = 0;
        } else {
            quiet++;
            rest(10);
        }
    }
    is_full = 1;
}

// What the other end does.

static const char *sends(int fd, int length) {
    static char letter = 'a';
    char text[64];
    memset(text, letter++, sizeof text);
    return shown(send(fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static const char *read_all(int fd) {
    static char text[65536];
    for (int quiet = 0; quiet < 6;) {
        long done = recv(fd, text, sizeof text, MSG_DONTWAIT);
        if (done > 0) {
            quiet = 0;
        } else if (done == 0 || errno != EAGAIN) {
            return shown(done);
        } else {
            quiet++;
            rest(5);
        }
    }
    return "more may come";
}

static void reset(int *fd) {
    struct linger none = {1, 0};
    setsockopt(*fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(*fd);
    *fd = -1;
}

static void peer_acts(char *line) {
    int way = draw(is_datagram ? 2 : 7);
    if (b < 0) {
        sprintf(line, "nothing");
        return;
    }
    // What the other end sends acknowledges, and may make room.
    if (is_full && (way < 2 || way == 3 || way == 6))
        way = 2;
    switch (way) {
    case 0: sprintf(line, "peer sends 3: %s", sends(b, 3)); break;
    case 1: sprintf(line, "peer sends 20: %s", sends(b, 20)); break;
    case 2: read_all(b); sprintf(line, "peer reads"); break;
    case 3: sprintf(line, "peer shuts to write: %s", shown(shutdown(b, SHUT_WR))); break;
    case 4: close(b); b = -1; sprintf(line, "peer closes"); break;
    case 5: reset(&b); sprintf(line, "peer resets"); break;
    case 6: sprintf(line, "peer sends 1 and 1: %s", sends(b, 1)); rest(30); sends(b, 1); break;
    }
}

// What another thread does.

static void *connection_for_another(void *_) {
    int it = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(it, (void *)&where, sizeof where))
        _exit(9);
    return (void *)(long)it;
}

static int fresh(void) { return (int)(long)connection_for_another(0); }

static void *closes(void *fd) { return (void *)(long)close((int)(long)fd); }

static long by_another(void *(*what)(void *), long with) {
    pthread_t thread;
    void *done;
    if (pthread_create(&thread, 0, what, (void *)with) || pthread_join(thread, &done))
        _exit(10);
    return (long)done;
}

static long in_child(int way) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        char text[8];
        if (way == 1)
            _exit(send(b, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) + 1);
        if (way == 2)
            _exit(recv(a, text, 8, MSG_DONTWAIT) + 1);
        if (way == 3)
            _exit(close(a) + 1);
        _exit(7);
    }
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static void *forks(void *way) { return (void *)in_child((int)(long)way); }

static int option(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }

static void acts_on_the_number(char *line) {
    int old = a, it, null;
    // Who looks at a number, or wants another datagram of it, looks at it again whenever he wakes up; in Linux what was closed stays in a set
    // while it has a copy.
    int looks_again = (sleepers[0].call >= POLL && sleepers[0].call < ACCEPT) || sleepers[0].call == ROOM;
    if ((looks_again && set < 0) || (is_datagram && sleepers[0].call == RECVMMSG)) {
        sprintf(line, "nothing");
        return;
    }
    switch (draw(set < 0 ? 7 : 6)) {
    case 0: sprintf(line, "close: %s", shown(by_another(closes, a))); break;
    case 1:
        null = open("/dev/null", O_RDWR);
        sprintf(line, "dup2 of a file: %d", dup2(null, a) == a);
        break;
    case 2: sprintf(line, "dup2 of another: %d", dup2(other[0], a) == a); break;
    case 3:
        close(a);
        it = open("/dev/null", O_RDWR);
        sprintf(line, "close, a file: %d", it == old);
        break;
    case 4:
        close(a);
        it = dup(other[0]);
        sprintf(line, "close, copy of another: %d", it == old);
        break;
    case 5:
        close(a);
        it = socket(AF_INET, is_datagram ? SOCK_DGRAM : SOCK_STREAM, 0);
        sprintf(line, "close, a new socket: %d", it == old);
        break;
    default:
        it = dup(a);
        close(a);
        a = it;
        sprintf(line, "copied and closed");
        return;
    }
    is_closed = 1;
    listener = -1;
}

static void acts_on_the_socket(char *line) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    struct timeval soon = {0, 100000};
    struct linger lingers = {draw(2), 0};
    int flags = fcntl(a, F_GETFL);
    int way = draw(13);
    if (listener >= 0 && way < 3)
        is_shut = 1;
    // What was dissolved has no error here (docs/shim.md), and who ends his own connection tells himself of it more than once in Linux.
    if ((way == 3 && (set >= 0 || is_datagram || listener >= 0 || sleepers[0].call >= POLL)) || (way < 3 && (is_at_edges || is_shut)))
        way += 4;
    if (way == 3)
        is_shut = 1;
    // A larger one of a fused connection is another one's first (docs/calls.md).
    if (way == 7 && is_full)
        way++;
    switch (way) {
    case 0: sprintf(line, "shutdown to read: %s", shown(shutdown(a, SHUT_RD))); break;
    case 1: sprintf(line, "shutdown to write: %s", shown(shutdown(a, SHUT_WR))); break;
    case 2: sprintf(line, "shutdown: %s", shown(shutdown(a, SHUT_RDWR))); break;
    case 3: sprintf(line, "dissolved: %s", shown(connect(a, &none, sizeof none))); break;
    case 4: sprintf(line, "limit of reads: %s", shown(setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon))); break;
    case 5: sprintf(line, "limit of writes: %s", shown(setsockopt(a, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon))); break;
    case 6: sprintf(line, "receive buffer: %s", shown(option(a, SOL_SOCKET, SO_RCVBUF, 262144))); break;
    case 7: sprintf(line, "send buffer: %s", shown(option(a, SOL_SOCKET, SO_SNDBUF, 131072))); break;
    case 8: sprintf(line, "lingers: %s", shown(setsockopt(a, SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers))); break;
    case 9: sprintf(line, "low: %s", shown(option(a, SOL_SOCKET, SO_RCVLOWAT, 2))); break;
    case 10: sprintf(line, "not to block: %s", shown(fcntl(a, F_SETFL, flags ^ O_NONBLOCK))); break;
    case 11: sprintf(line, "listens: %s", shown(is_datagram || has_peer || is_shut ? -2 : listen(a, 3))); break;
    default: sprintf(line, "asked: %s", shown(recv(a, (char[1]){0}, 1, MSG_PEEK | MSG_DONTWAIT))); break;
    }
}

static void acts_on_the_thread(char *line) {
    struct sleeper *it = sleepers;
    int way = draw(9);
    // Those that sleep are alike: the first is as good as any.
    while (it < sleepers + count && it->is_over)
        it++;
    if (way < 3 && it == sleepers + count) {
        sprintf(line, "nothing");
        return;
    }
    // Of a long text the part that is written is told, or not: it is the same then whether the thread ends.
    if (way == 2 && is_full && sleepers[0].call != CLOSE)
        way = 1;
    // A call that goes on begins with the number, which may be something else's by now.
    if (way == 0 && is_closed)
        way = 1;
    switch (way) {
    case 0: sprintf(line, "signal that goes on: %d", pthread_kill(it->thread, SIGUSR2)); break;
    case 1: sprintf(line, "signal: %d", pthread_kill(it->thread, SIGUSR1)); break;
    case 2: sprintf(line, "cancel: %d", pthread_cancel(it->thread)); break;
    case 3: sprintf(line, "a child ends: %ld", by_another(forks, 0)); break;
    case 4: sprintf(line, "a child sends: %ld", b < 0 || is_full ? -2 : by_another(forks, 1)); break;
    case 5: sprintf(line, "a child asks: %ld", is_closed || !has_peer ? -2 : by_another(forks, 2)); break;
    case 6: sprintf(line, "a child closes: %ld", is_closed ? -2 : by_another(forks, 3)); break;
    default: sprintf(line, "a child: %ld", in_child(0)); break;
    }
}

static void acts_on_the_set(char *line) {
    struct epoll_event wanted = {.events = ONE_OF(EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLET, 0)};
    int ready = pipes[0], it;
    switch (draw(6)) {
    case 0: sprintf(line, "changed to %x: %s", wanted.events, shown(epoll_ctl(set, EPOLL_CTL_MOD, a, &wanted))); break;
    case 1: sprintf(line, "taken out: %s", shown(epoll_ctl(set, EPOLL_CTL_DEL, a, 0))); break;
    case 2: sprintf(line, "another put in, %x: %s", wanted.events, shown(epoll_ctl(set, EPOLL_CTL_ADD, other[0], &wanted))); break;
    case 3:
        wanted.events = EPOLLIN;
        it = write(pipes[1], "x", 1);
        sprintf(line, "what is ready put in: %s %d", shown(epoll_ctl(set, EPOLL_CTL_ADD, ready, &wanted)), it);
        break;
    case 4: case 5:
        if (sleepers[0].call == POLL) {
            sprintf(line, "nothing");
            return;
        }
        if (draw(2)) {
            sprintf(line, "dup2 over the set: %d", dup2(file, set) == set);
            return;
        }
        sprintf(line, "the set closed: %s", shown(by_another(closes, set))); break;
    }
}

static void acts_on_the_listener(char *line) {
    int it;
    switch (draw(4)) {
    case 0: it = fresh(); sprintf(line, "connected"); break;
    case 1: it = fresh(); rest(30); it = fresh(); sprintf(line, "connected twice"); break;
    case 2: sprintf(line, "listens again: %s", shown(is_closed || is_shut ? -2 : listen(a, ONE_OF(4, 50)))); break;
    default: sprintf(line, "connected by another: %d", by_another(connection_for_another, 0) >= 0); break;
    }
    (void)it;
}

// What is left.

static void show(const char *name, int fd) {
    char events[80], text[64];
    struct pollfd entry = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    int error = 0, bytes = -1;
    long done;
    socklen_t length = sizeof error;
    if (fd < 0)
        return;
    if (is_full) {
        say("%s ends: %s", name, read_all(fd));
        return;
    }
    poll(&entry, 1, 0);
    events_of(entry.revents, events);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    ioctl(fd, FIONREAD, &bytes);
    done = recv(fd, text, sizeof text, MSG_DONTWAIT);
    // Linux keeps its own number of a call that is to go on (ERESTARTSYS) where recvmmsg has taken something before.
    say("%s:%s, error %s, %d wait, read %s", name, events, error == 0 ? "0" : strerrorname_np(error) ?: "EINTR", bytes, shown(done));
}

// Another thread becomes another program, which has the sockets; who sleeps is gone.
static void *becomes(void *_) {
    char word[2][16];
    snprintf(word[0], sizeof word[0], "%d", a);
    snprintf(word[1], sizeof word[1], "%d", b);
    execl(own_path, own_path, "after", life_name, word[0], word[1], (char *)0);
    _exit(14);
}

static void after(char **words) {
    life_name = words[2];
    a = atoi(words[3]);
    b = atoi(words[4]);
    show("a", a);
    show("b", b);
    say("sends %s", sends(a, 3));
    rest(60);
    show("b", b);
}

static void end(void) {
    if (has_peer && !is_closed && !is_shut && !is_full && sleepers[0].call != RECVMMSG && draw(6) == 0) {
        say("becomes another");
        by_another(becomes, 0);
    }
    for (int more = 0; more < 3; more++)
        for (int at = 0; at < count; at++)
            if (!sleepers[at].is_over) {
                pthread_kill(sleepers[at].thread, SIGUSR1);
                pthread_kill(sleepers[at].thread, SIGPROF);
                rest(10);
            }
    tell_returned("at last", 60);
    rest(40);
    if (!is_closed && !is_shut && a >= 0)
        show("a", a);
    show("b", b);
    show("other", other[1]);
    say("end");
    _exit(0);
}

static void handles(int signal, int flags) {
    struct sigaction action = {.sa_flags = flags};
    action.sa_handler = (void (*)(int))abs;
    sigaction(signal, &action, 0);
}

static void act(const char *kind) {
    char line[200] = "nothing", *it = line;
    int way = draw(10);
    int is_set = !strcmp(kind, "sets"), is_listener = !strcmp(kind, "listeners");
    if (is_closed && way < 4)
        way = 4 + draw(6);
    if (way < 2)
        acts_on_the_number(it);
    else if (way < 4)
        acts_on_the_socket(it);
    else if (way < 6)
        acts_on_the_thread(it);
    else if (is_set && set >= 0 && way < 9)
        acts_on_the_set(it);
    else if (is_listener && listener >= 0 && !is_shut)
        acts_on_the_listener(it);
    else
        peer_acts(it);
    tell_returned(line, 70);
}

static void begin_streams(void) {
    int way = draw(4), both = draw(2);
    enum call call;
    pair(&a, &b);
    has_peer = 1;
    if (way == 0) {
        call = ONE_OF(SEND, SENDMSG, WRITE, SENDFILE, SPLICE_OUT, CLOSE, ROOM);
        if (call == SPLICE_OUT || call == ROOM || call == CLOSE)
            fill(a);
        is_full = 1;
        if (call == CLOSE) {
            struct linger lingers = {1, 60};
            setsockopt(a, SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers);
            is_closed = 1;
        } else if (call == SPLICE_OUT && write(pipes[1], "0123456789", 10) != 10) {
            _exit(11);
        }
        begin(call, a, -1);
        return;
    }
    call = way == 1 ? ONE_OF(POLL, PPOLL, SELECT, PSELECT) : ONE_OF(RECV, WHOLE, PEEK, LOW, READ, READV, RECVMSG, RECVMMSG, SPLICE);
    if (call == LOW)
        option(a, SOL_SOCKET, SO_RCVLOWAT, 8);
    begin(call, a, -1);
    // How two that want all, or write to one pipe, share it is drawn by Linux, too.
    if (both && call != PEEK && call != WHOLE && call != SPLICE)
        begin(call, a, -1);
    else if (both && way == 1)
        begin(ONE_OF(POLL, PPOLL, SELECT, PSELECT), a, -1);
}

static void begin_datagrams(void) {
    enum call call = draw(3) ? ONE_OF(RECV, PEEK, READ, READV, RECVMSG, RECVMMSG) : ONE_OF(POLL, PPOLL, SELECT, PSELECT);
    int both = draw(2);
    is_datagram = has_peer = 1;
    datagram_pair(&a, &b);
    begin(call, a, -1);
    // A call that was interrupted after its first datagram leaves the next one its error.
    if (both && call != PEEK && call != RECVMMSG)
        begin(call, a, -1);
}

static void begin_listeners(void) {
    int both = draw(2);
    enum call call = ONE_OF(ACCEPT, ACCEPT, ACCEPT4, POLL, SELECT, CONNECT);
    if (call == CONNECT) {
        // Nobody is there.
        where.sin_addr.s_addr = (where.sin_addr.s_addr & htonl(0xffffff00)) | htonl(60 + atoi(life_name) % 190);
        where.sin_port = htons(9);
        a = socket(AF_INET, SOCK_STREAM, 0);
        begin(call, a, -1);
        return;
    }
    a = listener = listens(&where);
    begin(call, a, -1);
    if (both)
        begin(call, a, -1);
}

static void begin_sets(void) {
    int both = draw(2), which = draw(3);
    // Of two sets with EPOLLEXCLUSIVE one at least is told, by epoll_ctl(2).
    struct epoll_event wanted = {.events = EPOLLIN | (both ? ONE_OF(0, EPOLLET, EPOLLONESHOT) : ONE_OF(0, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE))};
    enum call call = ONE_OF(EPOLL, EPOLL, PWAIT2, POLL);
    if (which == 2) {
        is_datagram = 1;
        datagram_pair(&a, &b);
    } else {
        pair(&a, &b);
    }
    has_peer = 1;
    set = epoll_create1(0);
    if (epoll_ctl(set, EPOLL_CTL_ADD, a, &wanted))
        _exit(12);
    is_at_edges = (wanted.events & EPOLLET) != 0;
    say("wanted %x", wanted.events);
    begin(call, set, set);
    if (both)
        begin(call, set, set);
}

static void live(const char *kind, unsigned seed) {
    int steps;
    lot = 88172645463325252UL ^ ((unsigned long)seed * 2654435761UL << 8);
    for (int more = 0; more < 20; more++)
        draw(2);
    handles(SIGUSR1, 0);
    handles(SIGPROF, 0);
    handles(SIGUSR2, SA_RESTART);
    signal(SIGPIPE, SIG_IGN);
    if (pipe(pipes) || (file = memfd_create("long", 0)) < 0 || ftruncate(file, LONG))
        _exit(13);
    if (!strcmp(kind, "datagrams"))
        datagram_pair(&other[0], &other[1]);
    else
        pair(&other[0], &other[1]);
    if (!strcmp(kind, "streams"))
        begin_streams();
    else if (!strcmp(kind, "datagrams"))
        begin_datagrams();
    else if (!strcmp(kind, "sets"))
        begin_sets();
    else
        begin_listeners();
    rest(60);
    tell_returned(CALL[sleepers[0].call], 30);
    steps = 1 + draw(3);
    for (int more = 0; more < steps; more++)
        act(kind);
    end();
}

// Some lives at a time, each with a file for what it tells, which are shown in their order.
int main(int argc, char **argv) {
    unsigned first = atoi(argv[2]), lives = atoi(argv[3]);
    char word[4][24];
    pid_t children[AT_A_TIME];
    int texts[AT_A_TIME];
    own_path = argv[0];
    if (getenv("PATIENCE"))
        patience = atof(getenv("PATIENCE"));
    if (!strcmp(argv[1], "after")) {
        after(argv);
        return 0;
    }
    where.sin_family = AF_INET;
    inet_pton(AF_INET, argv[1], &where.sin_addr);
    if (argc > 5) {
        life_name = argv[2];
        alarm(60);
        live(argv[4], first);
    }
    for (unsigned at = 0; at < lives; at += AT_A_TIME) {
        unsigned some = lives - at < AT_A_TIME ? lives - at : AT_A_TIME;
        for (unsigned nth = 0; nth < some; nth++) {
            texts[nth] = memfd_create("life", 0);
            snprintf(word[0], sizeof word[0], "%u", first + at + nth);
            children[nth] = fork();
            if (children[nth] == 0) {
                dup2(texts[nth], 1);
                execl(argv[0], argv[0], argv[1], word[0], "1", argv[4], "alone", (char *)0);
                _exit(2);
            }
        }
        for (unsigned nth = 0; nth < some; nth++) {
            char text[65536];
            int status;
            long length;
            waitpid(children[nth], &status, 0);
            length = pread(texts[nth], text, sizeof text, 0);
            if (length < 0 || write(1, text, length) != length)
                return 1;
            if (status) {
                dprintf(1, "%u. ended with %x\n", first + at + nth, status);
            }
            close(texts[nth]);
        }
    }
    return 0;
}
