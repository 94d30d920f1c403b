"""Processes that forbid themselves descriptors and most system calls, and go on serving a connection, as sshd's do."""
import ctypes, os, resource, select, signal, socket, struct, sys, time

HOST = sys.argv[1]
# What a server of a kernel's socket needs none of: each ends the process. (Numbers of x86_64 and aarch64.)
NAMES = "socket connect sendmsg recvmsg socketpair ioctl fcntl dup dup3 openat timerfd_create timerfd_settime epoll_ctl " \
    "epoll_pwait epoll_create1 eventfd2 memfd_create prlimit64 sched_getaffinity rt_sigprocmask".split()
NUMBERS = {
    "x86_64": [41, 42, 46, 47, 53, 16, 72, 32, 292, 257, 283, 286, 233, 281, 291, 290, 319, 302, 204, 14],
    "aarch64": [198, 203, 211, 212, 199, 29, 25, 23, 24, 56, 85, 86, 21, 22, 20, 19, 279, 261, 123, 135],
}[os.uname().machine]
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2


def forbid(by_syscall):
    """Lets the process be killed when it calls one of them."""
    load, equal, answer, kill, allow = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000
    rules = [(load, 0, 0, 0)]
    for at, number in enumerate(NUMBERS):
        rules.append((equal, len(NUMBERS) - at, 0, number))
    rules += [(answer, 0, 0, allow), (answer, 0, 0, kill)]
    code = b"".join(struct.pack("=HBBI", *rule) for rule in rules)
    code = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(rules), ctypes.addressof(code)))
    assert LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if by_syscall:
        prctl = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
        assert LIBC.syscall(prctl, PR_SET_SECCOMP, FILTER, program, 0, 0) == 0
    else:
        assert LIBC.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0) == 0


def serve(sock, pipe, by_syscall):
    """Answers by a read that waits, then by a wait for two, until the client ends. Its exit code."""
    both = select.poll()
    both.register(sock, select.POLLIN)
    both.register(pipe, select.POLLIN)
    # (More than poll may be asked about.)
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
    forbid(by_syscall)
    turns = 0
    while True:
        if turns % 2:
            both.poll()
        data = os.read(sock.fileno(), 100_000)
        if not data:
            break
        turns += 1
        while data:
            data = data[os.write(sock.fileno(), data):]
    os.close(sock.fileno())
    return 7 if turns >= 50 else 8


def talk(client, size):
    for turn in range(50):
        if turn == 4:
            # The read that waits has slept for long, and sleeps on by no call that it was forbidden.
            time.sleep(0.4)
        client.sendall(b"x" * size)
        left = size
        while left:
            left -= len(client.recv(left))
    client.close()


def main():
    for by_syscall in (False, True):
        for size in (10, 20_000):
            listener = socket.create_server((HOST, 0))
            client = socket.create_connection(listener.getsockname())
            client.settimeout(20)
            accepted, _ = listener.accept()
            read, _ = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                client.close()
                listener.close()
                code = 1
                try:
                    code = serve(accepted, read, by_syscall)
                finally:
                    os._exit(code)
            accepted.close()
            listener.close()
            talk(client, size)
            print(by_syscall, size, os.waitpid(child, 0)[1] >> 8, flush=True)


main()
