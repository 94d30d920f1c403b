/* Processes that allow themselves the system calls of one operation, as the kernel's sockets need them, and carry it out. What a netstack's need beside
 * them is told by the command line, as docs/calls.md has it: KIND=CALL,CALL. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL(name) {#name, SYS_##name}
static const struct { const char *name; int number; } CALLS[] = {
    CALL(read), CALL(write), CALL(recvfrom), CALL(sendto), CALL(recvmsg), CALL(sendmsg), CALL(close), CALL(shutdown), CALL(accept), CALL(accept4),
    CALL(socket), CALL(bind), CALL(connect), CALL(ppoll), CALL(pselect6), CALL(epoll_pwait), CALL(epoll_pwait2), CALL(epoll_ctl), CALL(futex),
    CALL(fcntl), CALL(fstat), CALL(mmap), CALL(munmap), CALL(mprotect), CALL(madvise), CALL(clone), CALL(clone3), CALL(set_robust_list), CALL(rseq),
    CALL(rt_sigprocmask), CALL(exit), CALL(getpid), CALL(gettid), CALL(sched_yield), CALL(prlimit64), CALL(rt_sigaction), CALL(getrandom), CALL(brk),
#ifdef SYS_poll
    CALL(poll), CALL(select), CALL(epoll_wait),
#else
    {"poll", SYS_ppoll}, {"select", SYS_pselect6}, {"epoll_wait", SYS_epoll_pwait},
#endif
};

enum { THERE = 1, LATER = 2, DRAINED = 4, CALLED = 8, ASLEEP = 16 };
enum operation {
    STRICT, READ, RECV, RECVMSG, WRITE, SEND, FILL, POLL, POLL_IN_VAIN, PPOLL, SELECT, SELECT_IN_VAIN, EPOLL_WAIT, EPOLL_IN_VAIN, EPOLL_PWAIT, EPOLL_CTL, CLOSE, SHUTDOWN,
    ACCEPT, ECHO, NEW, THREAD,
};

/* What is done; what its peer does; what the kernel's socket needs; and the kind of operation as docs/calls.md has it. */
static const struct { enum operation what; int peer; const char *needs, *kind; } OPERATIONS[] = {
    {READ, THERE, "read", "reads that find something"},
    {RECV, THERE, "recvfrom", "reads that find something"},
    {RECVMSG, THERE, "recvmsg", "reads that find something"},
    {READ, LATER, "read", "reads and writes that wait"},
    {RECV, LATER, "recvfrom", "reads and writes that wait"},
    {RECVMSG, LATER, "recvmsg", "reads and writes that wait"},
    {FILL, DRAINED, "write", "reads and writes that wait"},
    {WRITE, 0, "write", "writes that find room"},
    {SEND, 0, "sendto", "writes that find room"},
    {WRITE, ASLEEP, "write", "writes that find room"},
    {STRICT, THERE, "", "writes that find room"},
    {STRICT, LATER, "", "writes that find room"},
    {ECHO, THERE, "read,sendto", "reads and writes that wait"},
    {POLL, THERE, "poll", "`poll` and `ppoll`"},
    {POLL, LATER, "poll", "`poll` and `ppoll`"},
    {POLL_IN_VAIN, 0, "poll", "`poll` and `ppoll`"},
    {PPOLL, THERE, "ppoll", "`poll` and `ppoll`"},
    {PPOLL, LATER, "ppoll", "`poll` and `ppoll`"},
    {SELECT, THERE, "select,pselect6", "`select` and `pselect`"},
    {SELECT, LATER, "select,pselect6", "`select` and `pselect`"},
    {SELECT_IN_VAIN, 0, "select,pselect6", "`select` and `pselect`"},
    {EPOLL_WAIT, THERE, "epoll_wait", "`epoll_wait`, `epoll_pwait` and `epoll_pwait2`"},
    {EPOLL_WAIT, LATER, "epoll_wait", "`epoll_wait`, `epoll_pwait` and `epoll_pwait2`"},
    {EPOLL_IN_VAIN, 0, "epoll_wait", "`epoll_wait`, `epoll_pwait` and `epoll_pwait2`"},
    {EPOLL_PWAIT, LATER, "epoll_pwait", "`epoll_wait`, `epoll_pwait` and `epoll_pwait2`"},
    {EPOLL_CTL, THERE, "epoll_ctl,epoll_wait", "`epoll_ctl`"},
    {CLOSE, 0, "close", "`close`"},
    {SHUTDOWN, 0, "shutdown", "`shutdown`"},
    {ACCEPT, CALLED, "accept", "`accept` and `accept4`"},
    {NEW, 0, "socket,bind,connect,sendto,poll,read,recvfrom", "`socket`, `bind` and `connect`"},
    {THREAD, LATER, "read,mmap,munmap,mprotect,madvise,clone,clone3,set_robust_list,rseq,rt_sigprocmask,rt_sigaction,getrandom,brk,futex,exit", "reads and writes that wait"},
};

static struct sockaddr_in host = {.sin_family = AF_INET};
static int listener, client, server, from, to, set;
static struct sockaddr_in named;

static void bind_one(int fd, struct sockaddr_in *name) {
    socklen_t length = sizeof *name;
    *name = host;
    if (bind(fd, (void *)name, length) || getsockname(fd, (void *)name, &length)) perror("bind"), exit(1);
}

/* A connection, a listener, two datagram sockets that have each other as peers, and a set. */
static void make_sockets(enum operation what) {
    struct sockaddr_in one, two;
    struct epoll_event event = {.events = EPOLLIN};
    listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind_one(listener, &named);
    if (listen(listener, 5) || connect(client, (void *)&named, sizeof named)) perror("connect"), exit(1);
    server = accept(listener, 0, 0);
    from = socket(AF_INET, SOCK_DGRAM, 0), to = socket(AF_INET, SOCK_DGRAM, 0);
    bind_one(from, &one), bind_one(to, &two);
    if (connect(from, (void *)&two, sizeof two) || connect(to, (void *)&one, sizeof one)) perror("peer"), exit(1);
    set = epoll_create1(0);
    if (what != EPOLL_CTL && epoll_ctl(set, EPOLL_CTL_ADD, server, &event)) perror("epoll_ctl"), exit(1);
}

static void close_sockets(void) {
    int all[] = {listener, client, server, from, to, set};
    for (unsigned nth = 0; nth < sizeof all / sizeof *all; nth++) close(all[nth]);
}

/* The other end, which nobody forbids anything. */
static void be_peer(int does, int is_datagram) {
    char text[4096];
    int one = is_datagram ? from : client;
    alarm(10);
    if (does == THERE) write(one, "x", 1);
    if (does == ASLEEP) read(one, text, 1);
    usleep(600000);
    if (does == LATER) write(one, "x", 1);
    if (does == CALLED) connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&named, sizeof named);
    if (does == DRAINED) while (recv(client, text, sizeof text, 0) > 0) {}
    pause();
}

static struct sock_filter rules[3 + 2 * 80];
static unsigned short count;

static void allow(int number) {
    rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
}

static void allow_list(const char *list) {
    char text[500], *rest = strcpy(text, list), *name;
    while ((name = strsep(&rest, ","))) {
        unsigned at = 0;
        while (at < sizeof CALLS / sizeof *CALLS && strcmp(CALLS[at].name, name)) at++;
        if (at == sizeof CALLS / sizeof *CALLS) fprintf(stderr, "no call is named %s\n", name), exit(1);
        allow(CALLS[at].number);
    }
}

static void confine(void) {
    struct sock_fprog program = {count, rules};
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program.len = count;
    alarm(20);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(99);
}

/* The oldest of all filters: nothing but read(2), write(2) and the end. */
static void be_strict(int one) {
    char text[2];
    alarm(20);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) syscall(SYS_exit, 99);
    long count = read(one, text, 1);
    syscall(SYS_exit, count == 1 && write(one, text, 1) == 1 ? 0 : 1);
}

static void *read_one(void *unused) {
    char text;
    (void)unused;
    return (void *)(long)read(server, &text, 1);
}

/* A datagram socket that is made now says something to itself. */
static int talk_to_itself(void) {
    char text[9];
    struct sockaddr_in own = host;
    struct pollfd entry = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), .events = POLLIN};
    own.sin_port = named.sin_port;
    if (bind(entry.fd, (void *)&own, sizeof own) || connect(entry.fd, (void *)&own, sizeof own)) return errno;
    for (int nth = 0; nth < 20; nth++)
        if (send(entry.fd, "x", 1, 0) != 1 || poll(&entry, 1, 2000) != 1 || recv(entry.fd, text, 9, 0) != 1) return 100 + nth;
    return recv(entry.fd, text, 9, 0) == -1 ? errno == EAGAIN ? 0 : errno : 97;
}

/* Zero, if what is done ends as it should. */
static int carry_out(enum operation what, int one) {
    static char text[4096];
    struct iovec piece = {text, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    struct pollfd entry = {.fd = what == POLL_IN_VAIN ? client : one, .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    struct timeval short_while = {.tv_usec = 300000};
    struct timespec long_while = {.tv_sec = 5};
    pthread_t thread;
    void *answer;
    fd_set all;
    FD_ZERO(&all);
    FD_SET(what == SELECT_IN_VAIN ? client : one, &all);
    switch (what) {
    case STRICT: break;
    case READ: return read(one, text, 1) != 1;
    case RECV: return recv(one, text, 1, 0) != 1;
    case RECVMSG: return recvmsg(one, &message, 0) != 1;
    case WRITE: return write(one, "x", 1) != 1;
    case SEND: return send(one, "x", 1, 0) != 1;
    case ECHO:
        for (int nth = 0; nth < 20; nth++)
            if (read(one, text, 9) != 1 || send(one, "x", 1, 0) != 1 || (one == to ? send(from, "x", 1, 0) : send(client, "x", 1, 0)) != 1) return 1;
        return 0;
    case FILL:
        for (int nth = 0; nth < 4000; nth++)
            if (write(one, text, sizeof text) <= 0) return 1;
        return 0;
    case POLL: return poll(&entry, 1, 5000) != 1;
    case POLL_IN_VAIN: return poll(&entry, 1, 300) != 0;
    case PPOLL: return ppoll(&entry, 1, &long_while, 0) != 1;
    case SELECT: return select(one + 1, &all, 0, 0, 0) != 1;
    case SELECT_IN_VAIN: return select(client + 1, &all, 0, 0, &short_while) != 0;
    case EPOLL_WAIT: return epoll_wait(set, &event, 1, 5000) != 1;
    case EPOLL_IN_VAIN: return epoll_wait(set, &event, 1, 300) != 0;
    case EPOLL_PWAIT: return epoll_pwait(set, &event, 1, 5000, 0) != 1;
    case EPOLL_CTL: return epoll_ctl(set, EPOLL_CTL_ADD, server, &event) || epoll_wait(set, &event, 1, 5000) != 1;
    case CLOSE: return close(one) != 0;
    case SHUTDOWN: return shutdown(one, SHUT_RDWR) != 0;
    case ACCEPT: return accept(listener, 0, 0) < 0;
    case NEW: return talk_to_itself();
    case THREAD: return pthread_create(&thread, 0, read_one, 0) || pthread_join(thread, &answer) || answer != (void *)1;
    }
    return 96;
}

/* Of sockets that were made before the fork, or after it: zero, its exit code, or a hundred and the signal that has killed it. */
static int run(int nth, const char *more, int is_datagram, int makes_own) {
    enum operation what = OPERATIONS[nth].what;
    int status;
    if (!makes_own) make_sockets(what);
    pid_t tested = fork();
    if (!tested) {
        pid_t peer;
        if (makes_own) make_sockets(what);
        if (!(peer = fork())) be_peer(OPERATIONS[nth].peer, is_datagram), _exit(0);
        if (OPERATIONS[nth].peer == ASLEEP) usleep(100000);
        /* Without a wait, which would ask for what is to be asked for by who confines himself. */
        for (int there = 0; OPERATIONS[nth].peer == THERE && !there; usleep(1000)) ioctl(is_datagram ? to : server, FIONREAD, &there);
        if (what == STRICT) be_strict(is_datagram ? to : server);
        rules[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
        allow(SYS_exit_group);
        allow_list(OPERATIONS[nth].needs);
        if (*more) allow_list(more);
        confine();
        syscall(SYS_exit_group, carry_out(what, is_datagram ? to : server));
    }
    waitpid(tested, &status, 0);
    return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* What a filter must allow beside, by the words of the command line. */
static const char *more_for(const char *kind, int words, char **word) {
    size_t length = strlen(kind);
    for (int at = 2; at < words; at++)
        if (!strncmp(word[at], kind, length) && word[at][length] == '=') return word[at] + length + 1;
    fprintf(stderr, "nothing is said of %s\n", kind), exit(1);
}

enum { OPERATIONS_COUNT = sizeof OPERATIONS / sizeof *OPERATIONS, AT_ONCE = 16 };

int main(int words, char **word) {
    static pid_t runners[OPERATIONS_COUNT][4];
    int (*codes)[4] = mmap(0, sizeof runners, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int running = 0;
    inet_pton(AF_INET, word[1], &host.sin_addr);
    for (int at = 0; at <= OPERATIONS_COUNT * 4; at++) {
        int nth = at / 4, of = at % 4;
        while (running == AT_ONCE || at == OPERATIONS_COUNT * 4 && running) {
            wait(0), running--;
        }
        if (nth == OPERATIONS_COUNT) break;
        /* Of some there is one kind. */
        enum operation what = OPERATIONS[nth].what;
        if (of & 1 && (what == FILL || what >= EPOLL_WAIT && what != CLOSE && what != SHUTDOWN && what != ECHO)) continue;
        const char *more = more_for(OPERATIONS[nth].kind, words, word);
        if (!(runners[nth][of] = fork())) {
            setpgid(0, 0);
            codes[nth][of] = run(nth, more, of & 1, of & 2);
            /* And the peers. */
            kill(0, SIGKILL);
        }
        running++;
    }
    for (int at = 0; at < OPERATIONS_COUNT * 4; at++)
        if (runners[at / 4][at % 4])
            printf("%d: %s, peer %d, %s, %s: %d\n", at / 4, OPERATIONS[at / 4].needs, OPERATIONS[at / 4].peer, at & 1 ? "datagram" : "stream",
                   at & 2 ? "own" : "inherited", codes[at / 4][at % 4]);
    return 0;
}
