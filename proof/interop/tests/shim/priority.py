# SO_PRIORITY and SO_MAX_PACING_RATE, before and after a socket is bound, connected, accepted and passed on. Prints what it
# sees; the kernel's is to be the same.
import array
import errno
import os
import socket
import struct
import sys

HOST = sys.argv[1]
PRIORITY, PACING = (socket.SOL_SOCKET, 12), (socket.SOL_SOCKET, 47)


def told(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def rate(it, length):
    value = it.getsockopt(*PACING, length)
    return len(value), int.from_bytes(value, sys.byteorder)


def both(it):
    return it.getsockopt(*PRIORITY), rate(it, 4), rate(it, 8), rate(it, 2)


for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    for family, host in [(socket.AF_INET, HOST), (socket.AF_INET6, "::ffff:" + HOST)]:
        it = socket.socket(family, kind)
        print("new:", both(it))
        for value in [0, 1, 6]:
            print("priority", value, told(lambda: it.setsockopt(*PRIORITY, value)), it.getsockopt(*PRIORITY))
        for value in [struct.pack("I", 125000), struct.pack("Q", 1 << 33), struct.pack("I", 0xFFFFFFFF), struct.pack("Q", 1 << 20)]:
            print("pacing", value, told(lambda: it.setsockopt(*PACING, value)), rate(it, 4), rate(it, 8))
        print("short:", told(lambda: it.setsockopt(*PACING, b"123")), told(lambda: it.setsockopt(*PRIORITY, b"12")))
        if kind == socket.SOCK_DGRAM:
            it.bind((host, 0))
            print("bound:", both(it))
            it.sendto(b"hello", it.getsockname()[:2])
            print("paced:", it.recv(9), both(it))
        else:
            it.bind((host, 0))
            it.listen()
            with socket.socket(family) as client:
                client.setsockopt(*PRIORITY, 4)
                client.connect(it.getsockname()[:2])
                taken, _ = it.accept()
                print("connected:", both(client), "accepted:", both(taken))
                taken.setsockopt(*PRIORITY, 2)
                print("changed:", both(taken), both(it), both(client))
                taken.send(b"paced")
                print("paced:", client.recv(9))
                taken.close()
        it.close()

# A TOS brings a priority of its own.
for kind in [socket.SOCK_STREAM, socket.SOCK_DGRAM]:
    it = socket.socket(socket.AF_INET, kind)
    for tos in [0, 8, 0x10, 0x18, 0xB8, 0xE0, 4]:
        it.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        print("tos", tos, it.getsockopt(*PRIORITY))
    it.setsockopt(*PRIORITY, 5)
    it.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 4)
    print("the same tos:", it.getsockopt(*PRIORITY))
    it.close()

# Passed to another process.
here, there = socket.socketpair()
if os.fork() == 0:
    _, control, _, _ = there.recvmsg(1, 99)
    fds = array.array("i")
    fds.frombytes(control[0][2])
    passed = socket.socket(fileno=fds[0])
    print("passed:", both(passed), flush=True)
    passed.setsockopt(*PRIORITY, 6)
    there.send(b".")
    os._exit(0)
it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
it.bind((HOST, 0))
it.setsockopt(*PRIORITY, 3)
it.setsockopt(*PACING, struct.pack("Q", 1 << 20))
here.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [it.fileno()]))])
here.recv(1)
os.wait()
print("changed elsewhere:", both(it))
