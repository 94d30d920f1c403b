"""What conversations of datagram sockets show: how a call's outcome and a socket's state are shown."""
import errno
import fcntl
import select
import struct

EVENTS = [("IN", select.POLLIN), ("PRI", select.POLLPRI), ("OUT", select.POLLOUT), ("RDHUP", select.POLLRDHUP),
          ("HUP", select.POLLHUP), ("ERR", select.POLLERR), ("NVAL", select.POLLNVAL)]
WANTED = select.POLLIN | select.POLLPRI | select.POLLOUT | select.POLLRDHUP


def told(call):
    """What a call returns, or the name of its error."""
    try:
        return call()
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


def number(sock, request):
    return told(lambda: struct.unpack("i", fcntl.ioctl(sock, request, bytes(4)))[0])


def events(sock):
    """What poll(2) says of it at once."""
    poll = select.poll()
    poll.register(sock, WANTED)
    bits = dict(poll.poll(0)).get(sock.fileno(), 0)
    return "|".join(name for name, bit in EVENTS if bits & bit) or "-"


def brief(data):
    return f"{len(data)}:{data[:4].hex()}..{data[-3:].hex()}" if isinstance(data, bytes) else data
