// A child that ends while its parent is still in fork(2), which takes some time here: nobody asks about that signal, so no other thread hears of it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int client, server, handled;
static volatile int is_slow;

static void slow(void) {
    if (is_slow) usleep(30000);
}

static void note(int signal) { handled++; }

static void *wait_for_text(void *set) {
    struct epoll_event event;
    int count = epoll_wait((int)(long)set, &event, 1, 20000);
    printf("epoll_wait: %s\n", count == 1 ? "text" : count == 0 ? "nothing" : strerrorname_np(errno));
    return 0;
}

static void try(const char *what) {
    struct epoll_event event = {EPOLLIN};
    int set = epoll_create1(0), status = 0;
    char text[4];
    pthread_t thread;
    printf("%s: ", what);
    fflush(stdout);
    epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
    pthread_create(&thread, 0, wait_for_text, (void *)(long)set);
    usleep(100000);
    for (int nth = 0; nth < 3; nth++) {
        is_slow = 1;
        pid_t child = fork();
        if (child == 0) _exit(7);
        is_slow = 0;
        waitpid(child, &status, 0);
    }
    send(server, "text", 4, 0);
    pthread_join(thread, 0);
    recv(client, text, 4, 0);
    printf("%s: child ended with %d, handled %d\n", what, WEXITSTATUS(status), handled);
    close(set);
}

int main(int count, char **words) {
    struct sockaddr_in where = {AF_INET};
    socklen_t length = sizeof where;
    sigset_t none, child;
    // Before any socket, so that it comes before what anybody else does there.
    pthread_atfork(0, slow, 0);
    inet_aton(words[1], &where.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&where, sizeof where);
    listen(listener, 5);
    getsockname(listener, (void *)&where, &length);
    client = socket(AF_INET, SOCK_STREAM, 0);
    connect(client, (void *)&where, sizeof where);
    server = accept(listener, 0, 0);
    try("by default");
    signal(SIGCHLD, SIG_IGN);
    try("ignored");
    signal(SIGCHLD, note);
    sigemptyset(&none);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    // All threads that are begun from here on hold it back.
    pthread_sigmask(SIG_BLOCK, &child, 0);
    try("held back");
    pthread_sigmask(SIG_SETMASK, &none, 0);
    printf("handled in the end: %d\n", handled > 0);
    return 0;
}
