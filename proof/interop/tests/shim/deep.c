// A library that is loaded with RTLD_DEEPBIND, and (-DPROGRAM) the program that loads it and gives it a socket. A library of a bare name is found by
// the caller's own $ORIGIN.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#ifdef PROGRAM
int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND);
    if (!library) {
        puts(dlerror());
        return 1;
    }
    int (*family)(int) = (int (*)(int))dlsym(library, "family");
    int (*connects)(const char *) = (int (*)(const char *))dlsym(library, "connects");
    Dl_info info;
    dladdr((void *)family, &info);
    printf("%d %d %s\n", family(socket(AF_INET, SOCK_STREAM, 0)), connects(arguments[2]), strrchr(info.dli_fname, '/') + 1);
}
#else
int family(int fd) {
    int family = -1;
    socklen_t len = sizeof family;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
    return family;
}
// To a listener of its own at this address.
int connects(const char *host) {
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t len = sizeof name;
    inet_pton(AF_INET, host, &name.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    return !bind(listener, (struct sockaddr *)&name, len) && !listen(listener, 1) && !getsockname(listener, (struct sockaddr *)&name, &len) &&
           !connect(client, (struct sockaddr *)&name, len);
}
#endif
