// Handlers on a stack as small as they usually are, which make other programs: execve, and vfork before it. With a socket of which options
// wait, and without. Each is tried in a process of its own, and below the stack lies nothing.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static int fd, is_vfork;
static char socket_number[16];
static const char show[] = "import socket, sys; it = socket.socket(fileno=int(sys.argv[1])); print('nodelay', it.getsockopt(6, 1))";

static void becomes(void) {
    char *words[] = {"python3", "-c", (char *)show, socket_number, 0}, *nothing[] = {"true", 0};
    if (fd >= 0) execve("/usr/bin/python3", words, environ);
    else execve("/bin/true", nothing, environ);
    _exit(99);
}

static void handler(int signal) {
    (void)signal;
    int status;
    if (!is_vfork) becomes();
    pid_t child = vfork();
    if (!child) becomes();
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

// What the kernel needs itself, the registers, is as large as the processor has it.
static void *stack_of(size_t size) {
    char *begin = mmap(0, 65536 + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(begin, 65536, PROT_NONE);
    return begin + 65536;
}

static void child(int has_options, size_t room) {
    int on = 1;
    fd = has_options ? socket(AF_INET, SOCK_STREAM, 0) : -1;
    if (has_options) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    snprintf(socket_number, sizeof socket_number, "%d", fd);
    stack_t stack = {.ss_size = (getauxval(AT_MINSIGSTKSZ) + room + 4095) & ~4095ul};
    stack.ss_sp = stack_of(stack.ss_size);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
}

int main(int count, char **words) {
    setvbuf(stdout, 0, _IONBF, 0);
    for (int way = 0; way < 4; way++) {
        int has_options = way & 1, status;
        is_vfork = way >> 1;
        pid_t pid = fork();
        if (!pid) child(has_options, atoi(words[1 + has_options])), _exit(97);
        waitpid(pid, &status, 0);
        printf("%s, options %d: %d, signal %d\n", is_vfork ? "vfork" : "execve", has_options, WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return count - 3;
}
