"""What conversations of sockets have in common: how a call's outcome and a socket's state are shown, and many messages in one call."""
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import time

EVENTS = [("IN", select.POLLIN), ("PRI", select.POLLPRI), ("OUT", select.POLLOUT), ("RDHUP", select.POLLRDHUP),
          ("HUP", select.POLLHUP), ("ERR", select.POLLERR), ("NVAL", select.POLLNVAL), ("RDNORM", select.POLLRDNORM),
          ("RDBAND", select.POLLRDBAND), ("WRNORM", select.POLLWRNORM), ("WRBAND", select.POLLWRBAND), ("MSG", select.POLLMSG)]
WANTED = select.POLLIN | select.POLLPRI | select.POLLOUT | select.POLLRDHUP
# How much longer than usual what changes is waited for: who has no CPU for long has said nothing, and may have more to say.
PATIENCE = float(os.environ.get("PATIENCE", "1"))
LIMIT = 2.0 * PATIENCE
LIBC = ctypes.CDLL(None, use_errno=True)


def told(call):
    """What a call returns, or the name of its error."""
    try:
        return call()
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


def number(sock, request):
    return told(lambda: struct.unpack("i", fcntl.ioctl(sock, request, bytes(4)))[0])


def named(bits):
    return "|".join(name for name, bit in EVENTS if bits & bit) or "-"


def events(sock, wanted=WANTED):
    """What poll(2) says of it at once."""
    poll = select.poll()
    poll.register(sock, wanted)
    return named(dict(poll.poll(0)).get(sock.fileno(), 0))


def brief(data):
    return f"{len(data)}:{data[:4].hex()}..{data[-3:].hex()}" if isinstance(data, bytes) else data


def settle(state, quiet, pause):
    """Until nothing of a state has changed for a while."""
    begin = since = time.monotonic()
    before = state()
    while time.monotonic() - since < quiet * PATIENCE and time.monotonic() - begin < LIMIT:
        time.sleep(pause)
        now = state()
        if now != before:
            before, since = now, time.monotonic()


def await_ipv6(link):
    """Until an interface has the address of one link that it makes itself, with which it sends to groups."""
    begin = time.monotonic()
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asker:
        while told(lambda: asker.connect(("ff02::77", 9, 0, link))) is not None and time.monotonic() - begin < 10:
            time.sleep(0.02)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Iovec)), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]


class Mmsghdr(ctypes.Structure):
    _fields_ = [("hdr", Msghdr), ("len", ctypes.c_uint)]


def many(texts):
    """As many messages, one buffer each; what must live as long."""
    buffers = [ctypes.create_string_buffer(text, max(len(text), 1)) for text in texts]
    pieces = [Iovec(ctypes.addressof(buffer), len(text)) for buffer, text in zip(buffers, texts)]
    messages = (Mmsghdr * len(texts))()
    for message, piece in zip(messages, pieces):
        message.hdr.iov, message.hdr.iovlen = ctypes.pointer(piece), 1
    return messages, (buffers, pieces)


def checked(count):
    if count < 0:
        raise OSError(ctypes.get_errno(), "")
    return count


def passed(function, sock, messages, *rest):
    """sendmmsg(2) or recvmmsg(2): how many, and the length and flags of each."""
    count = checked(function(sock.fileno(), messages, len(messages), *rest))
    return count, [(it.len, it.hdr.flags) for it in messages[:count]]
