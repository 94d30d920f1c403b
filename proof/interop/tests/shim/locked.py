"""A program that locks all its memory locks its own, and not what it shares with the daemon, which is larger than any memory."""
import ctypes
import os
import resource
import socket
import subprocess
import sys

CURRENT, FUTURE, ONFAULT = 1, 2, 4
HOST = sys.argv[1]
ECHO = """
import socket, sys

peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while text := peer.recv(9):
    peer.sendall(text)
"""
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    return ctypes.get_errno() if getattr(libc, name)(*arguments) else 0


def locked():
    """Megabytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck:")) >> 10


def talks():
    client = socket.create_connection(listener.getsockname())
    server = listener.accept()[0]
    for n in range(50):
        client.sendall(b"text")
        server.sendall(server.recv(100))
        assert client.recv(100) == b"text"
    return "talks"


def with_another():
    """What it shares with that one is mapped now."""
    child = subprocess.Popen([sys.executable, "-S", "-c", ECHO, *map(str, listener.getsockname())])
    server = listener.accept()[0]
    for n in range(500):
        server.sendall(b"ping")
        assert server.recv(9) == b"ping"
    server.close()
    return child.wait()


def look(what):
    print(what, "some" if 1 < locked() < 1024 else locked())


listener = socket.create_server((HOST, 0), backlog=8)
print(talks(), call("mlockall", 0), call("mlockall", ONFAULT), call("mlockall", 64))
print(call("mlockall", CURRENT))
look("of now")
print(call("mlockall", CURRENT | FUTURE), talks(), with_another())
look("of later")
print(call("mlockall", CURRENT), call("munlockall"), locked())
print(call("mlockall", CURRENT | ONFAULT), call("syscall", 151, CURRENT), talks())
look("on fault")
print(call("munlockall"), locked(), talks())
print(call("mlockall", FUTURE), talks(), with_another())
call("munlockall")

# Who has no privilege, and a limit.
for limit, name in [(0, "nothing"), (64 << 10, "little")]:
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
        os.setuid(65534)
        print(name, call("mlockall", CURRENT), flush=True)
        look(name)
        sys.stdout.flush()
        os._exit(0)
    sys.stdout.flush()
    os.wait()
