// Signals whose handlers run while calls of sockets wait, or are about to: what becomes of the call, and of the handler. Each call is tried in a
// process of its own, all at once.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { READ, READV, RECVMSG, RECVMMSG, ALL, DATAGRAM, SPLICE, POLL, POLL_TWO, PPOLL, SELECT, PSELECT, EPOLL, EPOLL_PWAIT, WRITE, FULL, ACCEPT,
       READ_LIMITED, DATAGRAM_LIMITED, FULL_LIMITED, ACCEPT_LIMITED, CONNECT, CALLS };
static const char *const NAMES[] = {"read", "readv", "recvmsg", "recvmmsg", "recv of more than there is", "datagram", "splice", "poll", "poll of two", "ppoll", "select",
                                    "pselect", "epoll_wait", "epoll_pwait", "write", "write without room", "accept", "read with a limit", "datagram with a limit",
                                    "write with a limit", "accept with a limit", "connect"};
enum { PLAIN, RESTART, BOTH_PLAIN, BOTH_RESTART, SIGNAL, INTERRUPT, SYSV, SIGSET, RESET, ONE_OF_MANY, IGNORED, WAYS };
static const char *const HOW[] = {"plain", "restart", "both, plain", "both, restart", "signal", "siginterrupt", "sysv_signal", "sigset", "reset", "thread", "ignored"};
static const int MOMENTS[] = {2, 90, 380};

static struct sockaddr_in where;
static const char *host;
static int listener, client, server, datagrams, set, pipes[2];
static char text[8 << 20];
static volatile sig_atomic_t ran, calling, missed;
static volatile int ended;
static pthread_t caller;
static pid_t number;

static void nap(int microseconds) {
    struct timespec span = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&span, &span)) {}
}

static void note(int _) {
    ran++;
    if (!calling) missed++;
}

static void install(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, 0);
}

static void clear(void) {
    install(SIGUSR1, SIG_DFL, 0);
    install(SIGUSR2, SIG_DFL, 0);
    siginterrupt(SIGUSR1, 0);
    install(SIGUSR1, SIG_DFL, 0);
}

static void prepare(int way) {
    clear();
    switch (way) {
    case BOTH_PLAIN: install(SIGUSR2, note, SA_RESTART); // and
    case PLAIN: case ONE_OF_MANY: install(SIGUSR1, note, 0); break;
    case BOTH_RESTART: install(SIGUSR2, note, 0); // and
    case RESTART: install(SIGUSR1, note, SA_RESTART); break;
    case SIGNAL: signal(SIGUSR1, note); break;
    case INTERRUPT: signal(SIGUSR1, note), siginterrupt(SIGUSR1, 1); break;
    case SYSV: sysv_signal(SIGUSR1, note); break;
    case SIGSET: sigset(SIGUSR1, note); break;
    case RESET: install(SIGUSR1, note, SA_RESETHAND | SA_RESTART); break;
    case IGNORED: install(SIGUSR1, SIG_IGN, 0); break;
    }
}

static int of_kind(int kind) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    int fd = socket(AF_INET, kind, 0);
    inet_aton(host, &any.sin_addr);
    bind(fd, (void *)&any, sizeof any);
    return fd;
}

static int connected(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    connect(fd, (void *)&where, sizeof where);
    return fd;
}

static void limit(int fd) {
    struct timeval limit = {4, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static void begin(int which) {
    struct epoll_event event = {EPOLLIN};
    socklen_t length = sizeof where;
    int small = 8192;
    listener = of_kind(SOCK_STREAM);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    listen(listener, 5);
    getsockname(listener, (void *)&where, &length);
    client = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(client, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    connect(client, (void *)&where, sizeof where);
    server = accept(listener, 0, 0);
    datagrams = of_kind(SOCK_DGRAM);
    set = epoll_create1(0);
    epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
    pipe(pipes);
    // It has come before the call begins, so that whatever ends the call finds it.
    if (which == ALL) send(server, "abc", 3, 0), recv(client, text, 3, MSG_PEEK | MSG_WAITALL);
    for (int turn = 0; turn < 3 && (which == FULL || which == FULL_LIMITED); turn++, nap(30000))
        while (send(client, text, sizeof text, MSG_DONTWAIT) > 0) {}
    if (which == READ_LIMITED || which == FULL_LIMITED) limit(client);
    if (which == DATAGRAM_LIMITED) limit(datagrams);
    if (which == ACCEPT_LIMITED) limit(listener);
}

static void end(void) {
    int all[] = {listener, client, server, datagrams, set, pipes[0], pipes[1]};
    for (unsigned n = 0; n < sizeof all / sizeof *all; n++) close(all[n]);
}

static long call(int which) {
    struct iovec piece = {text, 9};
    struct mmsghdr many = {{.msg_iov = &piece, .msg_iovlen = 1}};
    struct pollfd entries[] = {{client, POLLIN, 0}, {datagrams, POLLIN, 0}};
    struct epoll_event event;
    struct sockaddr_in nobody = where;
    sigset_t none;
    fd_set fds;
    int fd;
    sigemptyset(&none);
    FD_ZERO(&fds);
    FD_SET(client, &fds);
    switch (which) {
    case READ: case READ_LIMITED: return read(client, text, 9);
    case READV: return readv(client, &piece, 1);
    case RECVMSG: return recvmsg(client, &many.msg_hdr, 0);
    case RECVMMSG: return recvmmsg(datagrams, &many, 1, 0, 0);
    case ALL: return recv(client, text, 9, MSG_WAITALL);
    case DATAGRAM: case DATAGRAM_LIMITED: return recv(datagrams, text, 9, 0);
    case SPLICE: return splice(client, 0, pipes[1], 0, 9, 0);
    case POLL: return poll(entries, 1, 9000);
    case POLL_TWO: return poll(entries, 2, -1);
    case PPOLL: return ppoll(entries, 1, 0, &none);
    case SELECT: return select(client + 1, &fds, 0, 0, 0);
    case PSELECT: return pselect(client + 1, &fds, 0, 0, 0, &none);
    case EPOLL: return epoll_wait(set, &event, 1, 9000);
    case EPOLL_PWAIT: return epoll_pwait(set, &event, 1, -1, &none);
    case WRITE: case FULL: case FULL_LIMITED: return write(client, text, sizeof text);
    case ACCEPT: case ACCEPT_LIMITED:
        fd = accept(listener, 0, 0);
        return fd < 0 ? fd : close(fd) + 1;
    case CONNECT:
        nobody.sin_addr.s_addr = htonl(ntohl(where.sin_addr.s_addr) / 256 * 256 + 77);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        int answer = connect(fd, (void *)&nobody, sizeof nobody), error = errno;
        close(fd);
        errno = error;
        return answer;
    }
    return -1;
}

// Lets a call end without a signal.
static void release(int which) {
    static char nowhere[1 << 16];
    struct sockaddr_in to;
    socklen_t length = sizeof to;
    switch (which) {
    case CONNECT: install(SIGUSR2, note, 0), pthread_kill(caller, SIGUSR2); break; // It counts.
    case ACCEPT: case ACCEPT_LIMITED: close(connected()); break;
    case DATAGRAM: case DATAGRAM_LIMITED: case RECVMMSG:
        getsockname(datagrams, (void *)&to, &length);
        sendto(server > 0 ? datagrams : -1, "some text", 9, 0, (void *)&to, length);
        break;
    case WRITE: case FULL: case FULL_LIMITED:
        while (!ended)
            if (recv(server, nowhere, sizeof nowhere, MSG_DONTWAIT) < 0) nap(100);
        break;
    default: send(server, "some text", 9, 0);
    }
}

struct task {
    int which, moment, thread;
};

// Whether the thread that calls does; it may have done so before.
static int sleeps(void) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
    int fd = open(path, O_RDONLY);
    read(fd, line, sizeof line - 1);
    close(fd);
    char *state = strrchr(line, ')');
    return calling && state && state[2] == 'S';
}

static void *disturb(void *argument) {
    struct task *task = argument;
    while (!sleeps() && !ended) nap(200);
    nap(1000 * task->moment);
    if (task->thread) pthread_kill(caller, SIGUSR1); else kill(getpid(), SIGUSR1);
    for (int n = 0; n < 150 && !ended; n++) nap(1000);
    if (!ended) release(task->which);
    return 0;
}

static pthread_t started(void *(*run)(void *), void *argument) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&thread, 0, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    return thread;
}

static void one(int which, int way, int moment) {
    struct task task = {which, moment, way == ONE_OF_MANY};
    prepare(way);
    begin(which);
    ran = ended = 0;
    caller = pthread_self();
    number = gettid();
    pthread_t thread = started(disturb, &task);
    errno = 0;
    calling = 1;
    long answer = call(which);
    int error = errno, is_all = answer == (long)sizeof text;
    ended = 1;
    calling = 0;
    pthread_join(thread, 0);
    const char *was = answer > 0 ? is_all ? "all" : which == WRITE || which == FULL || which == FULL_LIMITED ? "some" : "there" : error == EINTR ? "EINTR" : "goes on";
    printf("%s, %s, %d ms: %s %ld, %d\n", NAMES[which], HOW[way], moment, was, which == ALL ? answer : 0, ran);
    end();
}

// A signal comes at any moment, once: it ends the call. One that comes before the call may not.
static void *watch(void *argument) {
    static char nowhere[1 << 16];
    int which = *(int *)argument;
    for (int late = 0; !ended; nap(1000)) {
        int round = calling;
        late = round && ran >= round ? late + 1 : 0;
        if (late < 60) continue;
        if (which != FULL) release(which);
        while (which == FULL && calling == round && !ended)
            if (recv(server, nowhere, sizeof nowhere, MSG_DONTWAIT) < 0) nap(100);
        late = 0;
    }
    return 0;
}

static void at_any_moment(int which) {
    int lost = 0, rounds = 400;
    clear();
    install(SIGALRM, note, 0);
    begin(which);
    ran = ended = missed = calling = 0;
    pthread_t thread = started(watch, &which);
    unsigned chance = 1;
    for (int round = 1; round <= rounds && !ended; round++) {
        struct itimerval once = {{0, 0}, {0, 5}};
        chance = chance * 1103515245 + 12345;
        once.it_value.tv_usec += chance / 65536 % (round % 8 ? 200 : 2000);
        setitimer(ITIMER_REAL, &once, 0);
        calling = round;
        long answer = call(which);
        lost += answer < 0 ? errno != EINTR : which != FULL || answer == (long)sizeof text;
        calling = 0;
        while (ran < round) nap(100);
        while (answer > 0 && (recv(client, text, 9, MSG_DONTWAIT) > 0)) {}
    }
    ended = 1;
    pthread_join(thread, 0);
    lost -= missed;
    if (lost <= rounds / 50) printf("%s, at any moment: ends\n", NAMES[which]);
    else printf("%s, at any moment: %d of %d lost\n", NAMES[which], lost, rounds);
    end();
}

static sigjmp_buf back;
static volatile int depth;

static void jump(int _) {
    depth++;
    siglongjmp(back, 1);
}

static void jumps(int which) {
    int took = 0;
    for (int round = 0; round < 6; round++) {
        begin(which);
        clear();
        install(SIGALRM, jump, round & 1 ? SA_RESTART : 0);
        struct itimerval once = {{0, 0}, {0, round < 4 ? 20000 : 400000}};
        if (!sigsetjmp(back, 1)) {
            setitimer(ITIMER_REAL, &once, 0);
            call(which);
            printf("it did not wait\n");
        } else took++;
        ended = 0;
        struct task task = {which, 0, 1};
        caller = pthread_self();
        number = gettid();
        calling = 1;
        install(SIGUSR1, SIG_IGN, 0);
        pthread_t thread = started(disturb, &task);
        int answer = call(which) > 0;
        ended = 1;
        calling = 0;
        pthread_join(thread, 0);
        close(client);
        client = -1;
        long count;
        while ((count = recv(server, text, sizeof text, 0)) > 0) {}
        took += 10 * answer + 100 * (which == WRITE || count == 0);
        end();
    }
    printf("%s, jumped out of: %d\n", NAMES[which], took);
}

// More often than a process may have calls that wait at a time.
enum { OFTEN = 1200 };

static void *jump_once(void *unused) {
    struct itimerval once = {{0, 0}, {0, 150}};
    struct pollfd two[] = {{client, POLLIN}, {pipes[0], POLLIN}};
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarm, 0);
    if (!sigsetjmp(back, 1)) {
        setitimer(ITIMER_REAL, &once, 0);
        poll(two, 2, 5000);
    }
    return unused;
}

static void jumps_often(int by_threads) {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    begin(POLL_TWO);
    clear();
    install(SIGALRM, jump, 0);
    depth = 0;
    for (int round = 0; round < OFTEN; round++) {
        if (by_threads) {
            pthread_sigmask(SIG_BLOCK, &alarm, 0);
            pthread_join(started(jump_once, 0), 0);
        } else jump_once(0);
    }
    struct pollfd two[] = {{client, POLLIN}, {pipes[0], POLLIN}};
    int before = poll(two, 2, 20);
    send(server, "x", 1, 0);
    int after = poll(two, 2, 5000);
    printf("%s jumped out of poll: %d, then %d and %d\n", by_threads ? "threads" : "often", depth, before, after);
    end();
}

static struct { int signal, info, mask, alternate, inside, value; } told;
static char stack[1 << 16];
static volatile int nested;

static void tell(int signal, siginfo_t *info, void *context) {
    sigset_t mask;
    char here;
    ucontext_t *where = context;
    sigprocmask(SIG_BLOCK, 0, &mask);
    told.signal = signal;
    told.info = info->si_code;
    told.value = info->si_value.sival_int;
    told.mask = sigismember(&mask, SIGUSR1) | sigismember(&mask, SIGUSR2) << 1 | sigismember(&mask, SIGHUP) << 2;
    told.alternate = &here >= stack && &here < stack + sizeof stack;
    told.inside = sigismember(&where->uc_sigmask, SIGHUP) | sigismember(&where->uc_sigmask, SIGUSR1) << 1;
    if (++nested < 2) raise(signal);
}

static void *wait_for(void *argument) {
    char byte;
    int fd = *(int *)argument;
    return (void *)(intptr_t)(read(fd, &byte, 1) < 0 ? errno : 0);
}

static int of(int signal) {
    struct sigaction action;
    sigaction(signal, 0, &action);
    return (action.sa_handler == note) | (action.sa_handler == jump) << 1 | ((void *)action.sa_sigaction == (void *)tell) << 2 | (action.sa_handler == SIG_DFL) << 3 |
           (action.sa_handler == SIG_IGN) << 4 | (action.sa_flags & SA_RESTART ? 32 : 0);
}

static void handlers(char *own) {
    struct sigaction action = {.sa_sigaction = tell}, before;
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    union sigval value = {.sival_int = 4711};
    sigaltstack(&alternate, 0);
    for (int flags = 0; flags < 8; flags++) {
        action.sa_flags = SA_SIGINFO | (flags & 1 ? SA_NODEFER : 0) | (flags & 2 ? SA_ONSTACK : 0) | (flags & 4 ? SA_RESETHAND : 0);
        sigemptyset(&action.sa_mask);
        sigaddset(&action.sa_mask, SIGUSR2);
        nested = flags & 4 ? 1 : 0;
        sigaction(SIGUSR1, &action, 0);
        sigqueue(getpid(), SIGUSR1, value);
        printf("flags %d: signal %d, code %d, value %d, mask %d, stack %d, before %d, %d times, then %d\n", flags, told.signal, told.info, flags & 4 ? told.value : 0, told.mask,
               told.alternate, told.inside, nested, of(SIGUSR1));
    }
    clear();
    printf("signal %d", signal(SIGUSR1, note) == SIG_DFL);
    printf(" %d %d", signal(SIGUSR1, jump) == note, of(SIGUSR1));
    siginterrupt(SIGUSR1, 1);
    printf(" %d", of(SIGUSR1));
    printf(" %d %d", signal(SIGUSR1, note) == jump, of(SIGUSR1));
    siginterrupt(SIGUSR1, 0);
    printf(" %d %d", of(SIGUSR1), sysv_signal(SIGUSR1, jump) == note);
    printf(" %d %d", of(SIGUSR1), sigset(SIGUSR1, note) == jump);
    printf(" %d %d", of(SIGUSR1), sigset(SIGUSR1, SIG_HOLD) == note);
    printf(" %d %d", sigset(SIGUSR1, jump) == SIG_HOLD, sigignore(SIGUSR1));
    printf(" %d %d %d", of(SIGUSR1), signal(SIGKILL, note) == SIG_ERR, errno);
    printf(" %d %d %d\n", signal(-1, note) == SIG_ERR, sigaction(SIGSTOP, &action, 0), errno);
    for (int signal = SIGHUP; signal <= SIGTERM; signal++) {
        if (signal == SIGKILL || signal == SIGSTOP || signal == SIGALRM) continue;
        install(signal, note, SA_RESTART);
        struct sigaction next = {.sa_handler = jump};
        int is_right = of(signal) == 33 && !sigaction(signal, &next, &next) && next.sa_handler == note && of(signal) == 2;
        sigaction(signal, &next, &before);
        if (!is_right || before.sa_handler != jump || of(signal) != 33) printf("signal %d is not told\n", signal);
        ran = 0;
        raise(signal);
        if (ran != 1) printf("signal %d does not come\n", signal);
        install(signal, SIG_DFL, 0);
    }
    // Children: one that was forked has the handlers, one that runs another program has none, and what one does that shares memory is its own.
    int status;
    install(SIGUSR1, note, 0);
    install(SIGUSR2, note, SA_RESTART);
    fflush(stdout);
    if (!fork()) {
        ran = 0;
        raise(SIGUSR1);
        _exit(ran * 10 + of(SIGUSR2));
    }
    wait(&status);
    printf("forked %d", WEXITSTATUS(status));
    fflush(stdout);
    if (!vfork()) {
        signal(SIGUSR1, SIG_DFL);
        execl(own, own, host, "reset", (char *)0);
        _exit(99);
    }
    wait(&status);
    printf(", vforked %d, parent %d", WEXITSTATUS(status), of(SIGUSR1));
    ran = 0;
    raise(SIGUSR1);
    printf(" %d, popen %d\n", ran, pclose(popen("exit 7", "r")) >> 8);
    // More handlers than anybody has.
    clear();
}

static void threads(void) {
    enum { MANY = 20 };
    int fds[MANY], others[MANY], count = 0;
    pthread_t all[MANY];
    void *was;
    clear();
    install(SIGUSR1, note, 0);
    install(SIGUSR2, note, SA_RESTART);
    begin(READ);
    for (int n = 0; n < MANY; n++) {
        fds[n] = connected();
        others[n] = accept(listener, 0, 0);
        pthread_create(&all[n], 0, wait_for, &fds[n]);
    }
    nap(400000);
    for (int round = 0; round < 50; round++) pthread_kill(all[round % MANY], SIGUSR2);
    nap(100000);
    for (int n = 0; n < MANY; n++) pthread_kill(all[n], SIGUSR1);
    for (int n = 0; n < MANY; n++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 2;
        if (!pthread_timedjoin_np(all[n], &was, &until)) count += (intptr_t)was == EINTR;
        close(fds[n]);
        close(others[n]);
    }
    printf("threads: %d of %d\n", count, MANY);
    end();
}

// Text goes through whole while signals come in a storm, to both ends.
static void storm(int flags) {
    enum { TOTAL = 24 << 20 };
    struct itimerval often = {{0, 1000}, {0, 1000}};
    unsigned long sent = 0, got = 0, wrong = 0;
    clear();
    install(SIGALRM, note, flags);
    begin(READ);
    fflush(stdout);
    pid_t child = fork();
    setitimer(ITIMER_REAL, &often, 0);
    if (!child) {
        close(server);
        while (sent < TOTAL) {
            static char part[300000];
            for (unsigned n = 0; n < sizeof part; n++) part[n] = (char)((sent + n) * 2654435761u >> 24);
            unsigned long len = TOTAL - sent < sizeof part ? TOTAL - sent : sizeof part;
            long count = write(client, part, len);
            if (count > 0) sent += (unsigned long)count;
            else if (errno != EINTR || flags & SA_RESTART) break;
        }
        _exit(sent != TOTAL);
    }
    close(client);
    for (;;) {
        long count = recv(server, text, 200000, got & 1 ? MSG_WAITALL : 0);
        if (!count) break;
        if (count < 0) {
            if (errno != EINTR || flags & SA_RESTART) break;
            continue;
        }
        for (long n = 0; n < count; n++) wrong += text[n] != (char)((got + (unsigned long)n) * 2654435761u >> 24);
        got += (unsigned long)count;
    }
    int status = 99;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    printf("storm, %s: %d, %lu of %d, %lu wrong\n", flags ? "restart" : "plain", status, got, TOTAL, wrong);
    setitimer(ITIMER_REAL, &(struct itimerval){{0}}, 0);
    end();
}

static void job(int n, char *own) {
    if (n < CALLS) {
        for (int way = 0; way < WAYS; way++)
            for (int moment = 0; moment < 3; moment++)
                if (n != CONNECT || moment == 1 && way < SIGNAL) one(n, way, MOMENTS[moment]);
        if (n != CONNECT && n != WRITE && n != ALL && n != SPLICE && n != FULL_LIMITED) at_any_moment(n);
    } else if (n == CALLS) {
        handlers(own);
    } else if (n == CALLS + 1) {
        threads();
        int all[] = {READ, DATAGRAM, POLL, POLL_TWO, EPOLL, WRITE};
        for (unsigned n = 0; n < sizeof all / sizeof *all; n++) jumps(all[n]);
        jumps_often(0);
        jumps_often(1);
    } else {
        storm(0);
        storm(SA_RESTART);
    }
}

int main(int count, char **words) {
    host = words[1];
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count > 2) return of(SIGUSR1) + of(SIGUSR2) * 2;
    if (getenv("JOB")) return job(atoi(getenv("JOB")), words[0]), 0;
    enum { JOBS = CALLS + 3 };
    int ends[JOBS][2];
    for (int n = 0; n < JOBS; n++) {
        pipe(ends[n]);
        if (!fork()) {
            dup2(ends[n][1], 1);
            job(n, words[0]);
            fflush(stdout);
            _exit(0);
        }
        close(ends[n][1]);
    }
    for (int n = 0; n < JOBS; n++) {
        long len;
        while ((len = read(ends[n][0], text, sizeof text)) > 0) write(1, text, (unsigned long)len);
    }
    while (wait(0) > 0) {}
    return 0;
}
