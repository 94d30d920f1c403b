"""Programs that limit their own address space: before their first socket, in a child, and in a program that inherits a listener."""
import os
import resource
import select
import socket
import subprocess
import sys

HOST, PEER = sys.argv[1], sys.argv[2]
MEGABYTE = 1 << 20
TEXT = bytes(range(256)) * 4096


def limit(megabytes):
    resource.setrlimit(resource.RLIMIT_AS, (megabytes * MEGABYTE,) * 2)


def through(one, other):
    """A megabyte and its echo."""
    one.setblocking(False)
    other.setblocking(True)
    sent, got = 0, b""
    while len(got) < len(TEXT):
        if sent < len(TEXT):
            try:
                sent += one.send(TEXT[sent:])
            except BlockingIOError:
                pass
        # Room for more may come a moment after all that was sent.
        if select.select([other], [one] if sent < len(TEXT) else [], [])[0]:
            got += other.recv(65536)
    one.setblocking(True)
    return got == TEXT


def pairs(name, listener, count):
    ends = []
    for _ in range(count):
        client = socket.create_connection(listener.getsockname())
        ends.append((client, listener.accept()[0]))
    print(name, [all(through(*two) and through(*two[::-1]) for two in ends) for _ in range(2)])
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((HOST, 0))
    datagrams.sendto(b"x" * 9000, datagrams.getsockname())
    print(name, len(datagrams.recv(65535)))


def child(name, do):
    sys.stdout.flush()
    number = os.fork()
    if not number:
        do()
        sys.stdout.flush()
        os._exit(0)
    print(name, os.waitpid(number, 0)[1])


if PEER == "inherited":
    with socket.socket(fileno=0) as listener:
        pairs("inherits", listener, 8)
    sys.exit()


def limited():
    limit(400)
    listener = socket.create_server((HOST, 0))
    pairs("limited", listener, 8)
    child("forks", lambda: (pairs("with its parent's", listener, 4), pairs("child", socket.create_server((HOST, 0)), 8)))


child("alone", limited)
listener = socket.create_server((HOST, 0))
pairs("free", listener, 8)


def inherits():
    environment = dict(os.environ)
    command = [sys.executable, __file__, HOST, "inherited"]
    print(subprocess.run(command, stdin=listener, env=environment, preexec_fn=lambda: limit(320)).returncode)


child("executes", inherits)
child("limits itself with its parent's", lambda: (limit(600), pairs("with its parent's", listener, 4), pairs("child", socket.create_server((HOST, 0)), 8)))


def shut_in():
    limit(600)
    os.chroot("/var/empty" if os.path.isdir("/var/empty") else "/sys/kernel")
    pairs("without /proc", socket.create_server((HOST, 0)), 4)


child("shut in", shut_in)


def tightly():
    """Less than the words of what it shares already take."""
    own = socket.create_server((HOST, 0))
    client = socket.create_connection(own.getsockname())
    limit(120)
    accepted = own.accept()[0]
    print(through(client, accepted), through(accepted, client))
    pairs("tightly", own, 2)
    try:
        print(len(bytearray(200 * MEGABYTE)))
    except MemoryError:
        print("no more than it allowed itself")
    child("tightly", lambda: pairs("tightly, a child", own, 2))


child("limits itself tightly", tightly)
limit(800)
pairs("limits itself later", listener, 8)
print(len(bytearray(200 * MEGABYTE)))
