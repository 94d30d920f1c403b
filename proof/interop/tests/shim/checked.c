/* What a client and a server do, in one process, for who looks at each access to memory. The argument is an address of its own. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t len = sizeof name;
    inet_pton(AF_INET, words[1], &name.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = socket(AF_INET, SOCK_STREAM, 0);
    printf("%d %d\n", bind(listener, (void *)&name, len), listen(listener, 5));
    getsockname(listener, (void *)&name, &len);
    printf("%d\n", connect(one, (void *)&name, len));
    int other = accept(listener, NULL, NULL);
    char *text = malloc(50000), *got = malloc(50000);
    memset(text, 7, 50000);
    struct pollfd ready = {.fd = other, .events = POLLIN};
    if (poll(&ready, 1, 20) != 0)
        return 5;
    for (int nth = 0; nth < 50; nth++) {
        size_t had = 0;
        if (write(one, text, 50000) < 1 || poll(&ready, 1, 5000) != 1)
            return 2;
        while (had < 50000) {
            ssize_t more = read(other, got + had, 50000 - had);
            if (more <= 0)
                return 3;
            had += more;
        }
        if (memcmp(text, got, 50000))
            return 4;
    }
    puts("all the same");
    return 0;
}
