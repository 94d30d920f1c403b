/* A process that allows itself one descriptor and may not ask for the limit, as sshd's child that speaks with strangers, waits for its connection: one that
 * another process of the host has begun, which talks later. Prints what each way of waiting tells. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum way { PPOLL, POLL, POLL_IN_VAIN, POLL_TOO_MANY, SELECT, READ, WAYS };
static const char *NAMES[] = {"ppoll", "poll", "poll in vain", "poll of two", "select", "read"};

static void confine(void)
{
    struct rlimit one = {1, 1};
    setrlimit(RLIMIT_NOFILE, &one);
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rows / sizeof *rows, rows};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static int waits(enum way way, int fd)
{
    struct pollfd both[] = {{fd, POLLIN}, {fd, POLLIN}};
    struct timeval limit = {20};
    fd_set set;
    switch (way) {
    case PPOLL: return ppoll(both, 1, NULL, NULL);
    case POLL: return poll(both, 1, 20000);
    case POLL_IN_VAIN: return poll(both, 1, 50);
    case POLL_TOO_MANY: return poll(both, 2, 20000);
    case SELECT: FD_ZERO(&set); FD_SET(fd, &set); return select(fd + 1, &set, NULL, NULL, &limit);
    default: return 1;
    }
}

static void serve(enum way way, int fd)
{
    char text[300] = "", heard[8];
    confine();
    for (int round = 0; round < 3; round++) {
        int told = waits(way, fd), error = told < 0 ? errno : 0;
        int len = told > 0 ? read(fd, heard, sizeof heard) : 0;
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d (%d), %d read", told, error, len);
        if (told > 0 && write(fd, "!", 1) != 1) strcat(text, " no answer");
    }
    /* Standard output has the terminal's number, and needs nothing new. */
    dprintf(1, "%s:%s\n", NAMES[way], text);
    _exit(0);
}

int main(int count, char **words)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7777)};
    inet_pton(AF_INET, words[1], &address.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, status;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 5)) return perror("listen"), 1;
    for (enum way way = 0; way < WAYS; way++) {
        char answer;
        if (!fork()) {
            int talks = way != POLL_IN_VAIN && way != POLL_TOO_MANY, fd = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(fd, (void *)&address, sizeof address)) return perror("connect"), 1;
            for (int round = 0; talks && round < 3; round++) {
                usleep(200000);
                if (write(fd, "hello", 5) != 5 || read(fd, &answer, 1) != 1) return 1;
            }
            _exit(read(fd, &answer, 1));
        }
        int fd = accept(listener, NULL, NULL);
        if (!fork()) serve(way, fd);
        close(fd);
        while (wait(&status) > 0)
            if (status) printf("%s: ended with %x\n", NAMES[way], status);
        fflush(stdout);
    }
    return 0;
}
