# A descriptor is closed while a call sleeps on it, and the last that the process has of the connection is the call's. A child that is forked
# meanwhile does not have it, and whatever the program puts at any number is its own. Prints what is seen; the kernel's is to be the same.
import os
import socket
import sys
import threading
import time

HOST = sys.argv[1]
server = socket.create_server((HOST, 0))


def numbers():
    return {int(name) for name in os.listdir("/proc/self/fd")}


def is_open(number):
    try:
        os.fstat(number)
        return True
    except OSError:
        return False


def sleeps(then):
    """A call sleeps on a connection that is closed; `then` is done, and the call returns. What the peer sees."""
    one = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    number = one.detach()
    got = []
    thread = threading.Thread(target=lambda: got.append(os.read(number, 9)))
    thread.start()
    time.sleep(0.2)
    before = numbers()
    os.close(number)
    # One of these numbers was that of the folder.
    after = then([it for it in numbers() - before if is_open(it)])
    far.send(b"x")
    thread.join()
    far.settimeout(5)
    try:
        end = far.recv(9)
    except OSError as error:
        end = error
    return got, end, after()


def child(_):
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends[1])
        os.read(ends[0], 1)
        os._exit(0)

    def ends_too():
        os.close(ends[1])
        os.close(ends[0])
        return os.waitpid(pid, 0)[1]

    return ends_too


def puts(new):
    null = os.open("/dev/null", os.O_WRONLY)
    for number in new:
        os.dup2(null, number)
    return lambda: all(os.write(number, b"x") == 1 for number in new)


print("a child", sleeps(child), flush=True)
print("another file", sleeps(puts), flush=True)
print("a child after that", sleeps(child), flush=True)
