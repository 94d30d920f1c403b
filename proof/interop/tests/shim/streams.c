/* What C's streams do over sockets: the three that a program begins with, those that it opens, and `dprintf`. Prints what
 * the far end of each connection has read. The argument is an address of its own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <error.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char *self, *host;

/* Both ends of a connection. */
static void pair(int ends[2]) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t len = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, host, &name.sin_addr);
    if (bind(listener, (void *)&name, len) || listen(listener, 1) || getsockname(listener, (void *)&name, &len) ||
        connect(ends[0], (void *)&name, len) || (ends[1] = accept(listener, 0, 0)) < 0)
        err(9, "no connection");
    close(listener);
}

/* What comes by a connection until its end, without the spaces that stand beside others. */
static void told(const char *title, int far) {
    static char text[65536];
    size_t all = 0;
    ssize_t count;
    shutdown(far, SHUT_WR);
    while ((count = read(far, text + all, sizeof text - all)) > 0)
        all += count;
    close(far);
    printf("== %s: %zu\n", title, all);
    for (size_t at = 0; at < all; at++)
        if (text[at] != ' ' || at == 0 || text[at - 1] != ' ')
            putchar(text[at]);
    putchar('\n');
    fflush(stdout);
}

static void listed(int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    printf("%d written\n", vdprintf(fd, format, list));
    va_end(list);
}

/* A service whose standard input, output and errors are a connection. */
static int serve(const char *way) {
    char line[100], word[100];
    int count = scanf("%99s", word);
    if (!fgets(line, sizeof line, stdin))
        return 3;
    printf("%d %s, rest %s", count, word, line);
    while (fgets(line, sizeof line, stdin))
        fputs(line, stdout);
    printf("at its end %d %d, %d %d %d\n", feof(stdin) != 0, ferror(stdin), fileno(stdin), fileno(stdout), fileno(stderr));
    fflush(stdout);
    fprintf(stderr, "an error %d\n", 1);
    errno = ENOENT;
    perror("perror");
    warn("warn");
    error(0, EPERM, "error");
    putchar_unlocked('p');
    putchar('\n');
    puts("a line");
    printf("sought %d\n", fseek(stdout, 0, SEEK_SET));
    fflush(stdout);
    dprintf(1, "between\n");
    if (!strcmp(way, "reopens")) {
        printf("before\n");
        if (freopen("/dev/null", "w", stdout) != stdout)
            return 4;
        printf("nobody reads this\n");
        dprintf(1, "nor this\n");
        if (write(1, "nor that\n", 9) != 9)
            return 5;
    }
    printf("what is left at the end");
    return 0;
}

static void served(const char *way) {
    int ends[2];
    pair(ends);
    if (!fork()) {
        close(ends[0]);
        for (int fd = 0; fd < 3; fd++)
            dup2(ends[1], fd);
        close(ends[1]);
        execl(self, self, host, way, NULL);
        _exit(8);
    }
    close(ends[1]);
    const char asked[] = "hello there\nsecond line\nthe last";
    if (write(ends[0], asked, sizeof asked - 1) < 0)
        err(9, "write");
    told(way, ends[0]);
    int status;
    wait(&status);
    printf("ended %d\n", WEXITSTATUS(status));
}

/* Connections that come where standard input and output were closed. */
static void in_place(void) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t len = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), ends[2];
    inet_pton(AF_INET, host, &name.sin_addr);
    if (bind(listener, (void *)&name, len) || listen(listener, 2) || getsockname(listener, (void *)&name, &len))
        err(9, "no listener");
    fflush(stdout);
    if (!fork()) {
        char line[100] = "";
        for (int fd = 0; fd < 2; fd++) {
            close(fd);
            if (accept(listener, 0, 0) != fd)
                _exit(7);
        }
        while (fgets(line, sizeof line, stdin))
            printf("heard %s", line);
        exit(fflush(stdout) ? 6 : 0);
    }
    for (int nth = 0; nth < 2; nth++)
        if ((ends[nth] = socket(AF_INET, SOCK_STREAM, 0)) < 0 || connect(ends[nth], (void *)&name, len))
            err(9, "no connection");
    close(listener);
    dprintf(ends[0], "one\ntwo\n");
    close(ends[0]);
    told("in place", ends[1]);
    int status;
    wait(&status);
    printf("ended %d\n", WEXITSTATUS(status));
}

int main(int count, char **words) {
    self = words[0];
    host = words[1];
    if (count > 2)
        return serve(words[2]);
    int ends[2];
    served("ends");
    served("reopens");
    in_place();

    pair(ends);
    fflush(stdout);
    printf("begun before, ");
    int old = dup(1);
    dup2(ends[1], 1);
    printf("ended in the connection %d\n", 7);
    fflush(stdout);
    puts("not pushed out");
    dup2(old, 1);
    close(old);
    close(ends[1]);
    printf("and this is back where it was\n");
    fflush(stdout);
    told("for a while", ends[0]);

    pair(ends);
    printf("%d written\n", dprintf(ends[1], "%d %d %d %d %d %d %s %c\n", 1, 2, 3, 4, 5, 6, "seven", '8'));
    dprintf(ends[1], "%f %d %f %s %f %f %f %f %f %f %f %Lf %ld\n", .1, 2, .3, "4", .5, .6, .7, .8, .9, 1., 1.1, 1.2L, -13L);
    listed(ends[1], "%s %.2f %*d|\n", "listed", 2.5, 6, 42);
    printf("%d written\n", dprintf(ends[1], "%40000s\n", "far to the right"));
    close(ends[1]);
    told("dprintf", ends[0]);

    pair(ends);
    FILE *both = fdopen(ends[1], "r+");
    printf("fileno %d\n", fileno(both) == ends[1]);
    setvbuf(both, NULL, _IOLBF, 0);
    fprintf(both, "a line of %d\n", 4);
    char line[100] = "";
    dprintf(ends[0], "an answer\n");
    printf("%d read: %s", fgets(line, sizeof line, both) == line, line);
    fprintf(both, "the end");
    printf("closed %d\n", fclose(both));
    told("fdopen", ends[0]);

    pair(ends);
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    // Who is reset before he has heard of the end is told of that instead.
    usleep(50000);
    dprintf(ends[1], "to nobody");
    usleep(50000);
    int refused = dprintf(ends[1], "to nobody");
    printf("refused %d %s\n", refused, strerror(errno));
    return 0;
}
