/* A child that borrows its parent's memory (vfork) becomes somebody else, and another program: its parent's sockets are the parent's own.
 * Then the process becomes somebody else, with a thread of its own, and has sockets still. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in name = {.sin_family = AF_INET};

static int connects(void) {
    struct sockaddr_in own = name;
    socklen_t length = sizeof own;
    char text[9] = "";
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&own, sizeof own) || listen(listener, 1) || getsockname(listener, (void *)&own, &length)) return errno;
    if (connect(client, (void *)&own, sizeof own)) return errno;
    int server = accept(listener, 0, 0);
    if (write(client, "text", 4) != 4 || read(server, text, 9) != 4 || strcmp(text, "text")) return errno;
    close(server), close(client), close(listener);
    return 0;
}

static void *thread(void *unused) {
    printf("thread: %d, user %d\n", connects(), geteuid());
    return unused;
}

int main(int count, char **words) {
    (void)count;
    inet_pton(AF_INET, words[1], &name.sin_addr);
    for (int nth = 0; nth < 2; nth++) {
        int status, low = dup(0);
        close(low);
        pid_t child = vfork();
        if (!child) {
            if (setgid(65534) || setuid(65534)) _exit(1);
            execl("/bin/true", "true", (char *)0);
            _exit(2);
        }
        waitpid(child, &status, 0);
        int now = dup(0);
        close(now);
        printf("child: %d, user %d, the same number is free: %d\n", status, geteuid(), now == low);
        if (nth == 0) printf("parent: %d\n", connects());
    }
    pthread_t other;
    printf("becomes: %d %d\n", setgid(65534), setuid(65534));
    printf("somebody else: %d\n", connects());
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    return 0;
}
