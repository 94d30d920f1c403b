"""The interfaces that a program sees are those of its netstack, by every way to ask, on any socket of the internet's families."""
import ctypes, errno, fcntl, socket, struct, sys

HOST = sys.argv[1]
GET = {"NAME": 0x8910, "CONF": 0x8912, "FLAGS": 0x8913, "ADDR": 0x8915, "BRDADDR": 0x8919, "NETMASK": 0x891B,
       "MTU": 0x8921, "HWADDR": 0x8927, "INDEX": 0x8933}


def ask(s, what, name=b"web0", value=b""):
    return fcntl.ioctl(s, GET[what], struct.pack("16s24s", name, value))


def test_requests():
    for s in (socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)):
        address = lambda what: socket.inet_ntoa(ask(s, what)[20:24])
        assert (address("ADDR"), address("NETMASK"), address("BRDADDR")) == (HOST, "255.255.255.0", "10.0.0.255")
        (index,) = struct.unpack_from("i", ask(s, "INDEX"), 16)
        assert index > 0 and ask(s, "NAME", b"", struct.pack("i", index)).startswith(b"web0\0")
        assert struct.unpack_from("i", ask(s, "MTU"), 16)[0] >= 1280
        assert struct.unpack_from("H", ask(s, "FLAGS"), 16)[0] & 1, "it is up"
        assert struct.unpack_from("H", ask(s, "HWADDR"), 16) == (1,) and ask(s, "HWADDR")[18:24] != bytes(6)
        try:
            ask(s, "ADDR", b"eth99")
            raise AssertionError("there is none")
        except OSError as error:
            assert error.errno == errno.ENODEV
        assert struct.unpack_from("H", ask(s, "FLAGS", b"lo"), 16)[0] == 0x49
        assert struct.unpack_from("H", ask(s, "HWADDR", b"lo"), 16) == (772,)
        assert ask(s, "BRDADDR", b"lo")[20:24] == bytes(4)


def test_list():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    room = ctypes.create_string_buffer(400)
    told = fcntl.ioctl(s, GET["CONF"], struct.pack("iP", 400, ctypes.addressof(room)))
    assert struct.unpack_from("i", told) == (80,)
    assert room.raw.startswith(b"lo\0") and socket.inet_ntoa(room.raw[20:24]) == "127.0.0.1"
    assert room.raw[40:].startswith(b"web0\0") and socket.inet_ntoa(room.raw[60:64]) == HOST


class Entry(ctypes.Structure):
    pass


Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint),
                  ("address", ctypes.c_void_p), ("mask", ctypes.c_void_p), ("other", ctypes.c_void_p),
                  ("data", ctypes.c_void_p)]


def test_getifaddrs():
    libc = ctypes.CDLL(None)
    first = ctypes.POINTER(Entry)()
    assert libc.getifaddrs(ctypes.byref(first)) == 0
    seen, at = {}, first
    while at:
        entry = at.contents
        (family,) = struct.unpack("H", ctypes.string_at(entry.address, 2))
        seen.setdefault(family, []).append((entry.name, ctypes.string_at(entry.address, 28), entry.mask))
        at = entry.next
    (name, address, mask), loopback = seen[socket.AF_INET][1], seen[socket.AF_INET][0]
    assert loopback[0] == b"lo" and socket.inet_ntoa(loopback[1][4:8]) == "127.0.0.1"
    assert name == b"web0" and socket.inet_ntoa(address[4:8]) == HOST
    assert socket.inet_ntoa(ctypes.string_at(mask, 8)[4:]) == "255.255.255.0"
    assert [name for name, _, _ in seen[socket.AF_PACKET]] == [b"lo", b"web0"]
    first6, *others6 = seen[socket.AF_INET6]
    assert first6[0] == b"lo" and first6[1][8:24] == bytes(15) + b"\1"
    assert all(address[8:10] == b"\xfe\x80" for _, address, _ in others6)
    libc.freeifaddrs(first)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, "good", flush=True)
