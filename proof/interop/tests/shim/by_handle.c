// Functions of libc that a program looks up by a handle of it, as interpreters do for what runs in them (ctypes, JNA, P/Invoke, PHP's FFI).
// `by_handle HOST OTHER`, where OTHER is another library that is named as libc is.
// With -DBETWEEN a library that stands in front of libc itself, behind others that do, and finds what it stands in front of by such a handle.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <link.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef OTHER
ssize_t send(int fd, const void *text, size_t len, int flags) { return 77; }
#elif defined BETWEEN
ssize_t send(int fd, const void *text, size_t len, int flags) {
    static int depth;
    if (depth++) {
        static const char circle[] = "it comes back to itself\n";
        write(1, circle, sizeof circle - 1);
        _exit(1);
    }
    ssize_t (*next)(int, const void *, size_t, int) = dlsym(dlopen("libc.so.6", RTLD_NOW), "send");
    ssize_t sent = next(fd, text, len, flags);
    depth--;
    return sent;
}
#else
static struct sockaddr_in own;

static const char *last(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

// What libc alone has is libc's.
static const char *owner(void *function) {
    Dl_info info;
    return dladdr(function, &info) ? info.dli_fname : "nobody's";
}

static void speaks(void *library) {
    ssize_t (*sends)(int, const void *, size_t, int) = dlsym(library, "send");
    ssize_t (*receives)(int, void *, size_t, int) = dlsym(library, "recv");
    int (*sets)(int, int, int, const void *, socklen_t) = dlsym(library, "setsockopt");
    int (*makes)(int, int, int) = dlsym(library, "socket");
    int (*binds)(int, const struct sockaddr *, socklen_t) = dlsym(library, "bind");
    int (*closes)(int) = dlsym(library, "close");
    struct sockaddr_in name = own;
    socklen_t len = sizeof name;
    char text[16] = "";
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), client = makes(AF_INET, SOCK_STREAM, 0);
    printf("  bound %d", binds(listener, (struct sockaddr *)&name, len));
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&name, &len);
    printf(" connected %d", connect(client, (struct sockaddr *)&name, len));
    struct pollfd arrives = {.fd = listener, .events = POLLIN};
    int server = poll(&arrives, 1, 5000) == 1 ? accept(listener, 0, 0) : -1;
    printf(" sent %zd", sends(client, "text", 4, 0));
    struct pollfd waits = {.fd = server, .events = POLLIN};
    printf(" ready %d", server < 0 ? 0 : poll(&waits, 1, 5000));
    printf(" received %zd", receives(server, text, sizeof text, MSG_DONTWAIT));
    printf(" %s set %d", text, sets(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    // What is not the netstack's goes on.
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    printf(" beside %zd", sends(pair[0], "text", 4, 0));
    printf(" %zd", receives(pair[1], text, sizeof text, MSG_DONTWAIT));
    close(pair[0]);
    close(pair[1]);
    printf(" closed %d %d %d\n", closes(client), closes(server), closes(listener));
}

static void versions(void *library) {
    // The oldest version of each platform, the one of a function that is younger, and one that no function has.
    const char *known[] = {"GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34", "GLIBC_9.9"};
    for (int nth = 0; nth < 4; nth++) {
        ssize_t (*sends)(int, const void *, size_t, int) = dlvsym(library, "send", known[nth]);
        int pair[2] = {-1, -1};
        struct sockaddr_in name = own;
        socklen_t len = sizeof name;
        int hears = socket(AF_INET, SOCK_DGRAM, 0), speaks = socket(AF_INET, SOCK_DGRAM, 0);
        bind(hears, (struct sockaddr *)&name, len);
        getsockname(hears, (struct sockaddr *)&name, &len);
        connect(speaks, (struct sockaddr *)&name, len);
        printf("  %s %zd", known[nth], sends ? sends(speaks, "text", 4, 0) : -1);
        struct pollfd waits = {.fd = hears, .events = POLLIN};
        printf(" ready %d", poll(&waits, 1, sends ? 5000 : 0));
        // Of posix_spawn there are two, of qsort there is one that no other library has.
        void *(*find)(void *, const char *, const char *) = dlvsym;
        void *old = find(library, "posix_spawn", known[nth]), *sorts = find(library, "qsort", known[nth]);
        printf(" %s %s %s\n", old ? "found" : "none", sorts ? last(owner(sorts)) : "none", find(library, "nothing", known[nth]) ? "found" : "none");
        close(hears);
        close(speaks);
    }
}

int main(int count, char **arguments) {
    // Who has a socket that is another system's waits for what does not come.
    alarm(60);
    own.sin_family = AF_INET;
    inet_pton(AF_INET, arguments[1], &own.sin_addr);
    const char *of_libc = owner(dlsym(RTLD_DEFAULT, "qsort"));
    char real[4096], beside[4096], through[4096];
    realpath(of_libc, real);
    snprintf(beside, sizeof beside, "%.*s/libpthread.so.0", (int)(strrchr(of_libc, '/') - of_libc), of_libc);
    snprintf(through, sizeof through, "%.*s/linked.so", (int)(strrchr(arguments[2], '/') - arguments[2]), arguments[2]);
    unlink(through);
    symlink(real, through);
    printf("pthread is there %d\n", dlopen("libpthread.so.0", RTLD_NOW | RTLD_NOLOAD) != 0);
    struct {
        const char *what, *name;
    } named[] = {{"name", "libc.so.6"}, {"path", of_libc}, {"real path", real}, {"link", through}, {"pthread", "libpthread.so.0"}, {"its path", beside}};
    for (int nth = 0; nth < 6; nth++) {
        void *library = dlopen(named[nth].name, RTLD_NOW);
        printf("%s %d again %d\n", named[nth].what, library != 0, library == dlopen(named[nth].name, RTLD_LAZY | RTLD_NOLOAD));
        speaks(library);
        versions(library);
        printf("  qsort is in %s, errno %d\n", last(owner(dlsym(library, "qsort"))), dlsym(library, "__errno_location") != 0);
        dlerror();
        printf("  nothing %d", dlsym(library, "nothing") != 0);
        printf(" %d closed %d %d", dlerror() != 0, dlclose(library), dlclose(library));
        printf(" without flags %d", dlopen(named[nth].name, 0) != 0);
        printf(" %d\n", dlerror() != 0);
    }
    puts("of all");
    versions(RTLD_DEFAULT);
    void *program = dlopen(NULL, RTLD_NOW);
    speaks(program);
    void *other = dlopen(arguments[2], RTLD_NOW | RTLD_NOLOAD);
    printf("another of its name %d", other != 0);
    other = dlopen(arguments[2], RTLD_NOW);
    ssize_t (*sends)(int, const void *, size_t, int) = dlsym(other, "send");
    printf(" %d %zd\n", other != 0, sends(-1, "", 0, 0));
    printf("there %d none %d", dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD) != 0, dlopen("libnone.so.6", RTLD_NOW) != 0);
    printf(" %d\n", dlerror() != 0);
}
#endif
