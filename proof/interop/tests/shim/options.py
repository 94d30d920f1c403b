"""What becomes of each socket option, of a stream and of a datagram socket, as lines of the table in docs/calls.md."""
import errno, socket, struct

SOCKET, IP, IPV6, TCP, UDP = 1, 0, 41, 6, 17
ON = struct.pack("i", 1)
ADDRESS = socket.inet_aton("224.0.0.251") + socket.inet_aton("0.0.0.0")
GROUP = socket.inet_pton(socket.AF_INET6, "ff02::fb") + struct.pack("i", 0)
# Level, number, and a value that Linux takes.
OPTIONS = {
    "SO_DEBUG": (SOCKET, 1, ON), "SO_REUSEADDR": (SOCKET, 2, ON), "SO_TYPE": (SOCKET, 3, None), "SO_ERROR": (SOCKET, 4, None),
    "SO_DONTROUTE": (SOCKET, 5, ON), "SO_BROADCAST": (SOCKET, 6, ON), "SO_SNDBUF": (SOCKET, 7, struct.pack("i", 50000)),
    "SO_RCVBUF": (SOCKET, 8, struct.pack("i", 50000)), "SO_KEEPALIVE": (SOCKET, 9, ON), "SO_OOBINLINE": (SOCKET, 10, ON),
    "SO_NO_CHECK": (SOCKET, 11, ON), "SO_PRIORITY": (SOCKET, 12, ON), "SO_LINGER": (SOCKET, 13, struct.pack("ii", 1, 0)), "SO_BSDCOMPAT": (SOCKET, 14, ON),
    "SO_REUSEPORT": (SOCKET, 15, ON), "SO_PASSCRED": (SOCKET, 16, ON), "SO_PEERCRED": (SOCKET, 17, None),
    "SO_RCVLOWAT": (SOCKET, 18, ON), "SO_SNDLOWAT": (SOCKET, 19, ON), "SO_RCVTIMEO": (SOCKET, 20, struct.pack("qq", 1, 0)),
    "SO_SNDTIMEO": (SOCKET, 21, struct.pack("qq", 1, 0)), "SO_BINDTODEVICE": (SOCKET, 25, b"web0"),
    "SO_ATTACH_FILTER": (SOCKET, 26, bytes(16)), "SO_DETACH_FILTER": (SOCKET, 27, ON),
    "SO_TIMESTAMP": (SOCKET, 29, ON), "SO_ACCEPTCONN": (SOCKET, 30, None), "SO_PEERSEC": (SOCKET, 31, None),
    "SO_SNDBUFFORCE": (SOCKET, 32, struct.pack("i", 50000)), "SO_RCVBUFFORCE": (SOCKET, 33, struct.pack("i", 50000)),
    "SO_PASSSEC": (SOCKET, 34, ON), "SO_TIMESTAMPNS": (SOCKET, 35, ON), "SO_MARK": (SOCKET, 36, ON), "SO_TIMESTAMPING": (SOCKET, 37, ON),
    "SO_PROTOCOL": (SOCKET, 38, None), "SO_DOMAIN": (SOCKET, 39, None), "SO_RXQ_OVFL": (SOCKET, 40, ON),
    "SO_WIFI_STATUS": (SOCKET, 41, ON), "SO_PEEK_OFF": (SOCKET, 42, ON), "SO_NOFCS": (SOCKET, 43, ON), "SO_LOCK_FILTER": (SOCKET, 44, ON),
    "SO_SELECT_ERR_QUEUE": (SOCKET, 45, ON), "SO_BUSY_POLL": (SOCKET, 46, ON),
    "SO_MAX_PACING_RATE": (SOCKET, 47, struct.pack("i", 1 << 20)), "SO_BPF_EXTENSIONS": (SOCKET, 48, None), "SO_INCOMING_CPU": (SOCKET, 49, ON),
    "SO_ATTACH_BPF": (SOCKET, 50, ON), "SO_ATTACH_REUSEPORT_CBPF": (SOCKET, 51, bytes(16)), "SO_ATTACH_REUSEPORT_EBPF": (SOCKET, 52, ON),
    "SO_CNX_ADVICE": (SOCKET, 53, ON), "SO_MEMINFO": (SOCKET, 55, None), "SO_INCOMING_NAPI_ID": (SOCKET, 56, None),
    "SO_COOKIE": (SOCKET, 57, None), "SO_PEERGROUPS": (SOCKET, 59, None),
    "SO_ZEROCOPY": (SOCKET, 60, ON), "SO_TXTIME": (SOCKET, 61, bytes(8)), "SO_BINDTOIFINDEX": (SOCKET, 62, struct.pack("i", 0)),
    "SO_PREFER_BUSY_POLL": (SOCKET, 69, ON), "SO_BUSY_POLL_BUDGET": (SOCKET, 70, ON), "SO_NETNS_COOKIE": (SOCKET, 71, None),
    "SO_BUF_LOCK": (SOCKET, 72, ON), "SO_RESERVE_MEM": (SOCKET, 73, ON), "SO_TXREHASH": (SOCKET, 74, ON), "SO_RCVMARK": (SOCKET, 75, ON),
    "SO_PASSPIDFD": (SOCKET, 76, ON), "SO_PEERPIDFD": (SOCKET, 77, None), "SO_PASSRIGHTS": (SOCKET, 83, ON),
    "TCP_NODELAY": (TCP, 1, ON), "TCP_MAXSEG": (TCP, 2, struct.pack("i", 1000)), "TCP_CORK": (TCP, 3, ON),
    "TCP_KEEPIDLE": (TCP, 4, ON), "TCP_KEEPINTVL": (TCP, 5, ON), "TCP_KEEPCNT": (TCP, 6, ON), "TCP_SYNCNT": (TCP, 7, ON),
    "TCP_LINGER2": (TCP, 8, ON), "TCP_DEFER_ACCEPT": (TCP, 9, ON), "TCP_WINDOW_CLAMP": (TCP, 10, struct.pack("i", 5000)),
    "TCP_INFO": (TCP, 11, None), "TCP_QUICKACK": (TCP, 12, ON), "TCP_CONGESTION": (TCP, 13, b"cubic"),
    "TCP_MD5SIG": (TCP, 14, bytes(216)), "TCP_THIN_LINEAR_TIMEOUTS": (TCP, 16, ON), "TCP_THIN_DUPACK": (TCP, 17, ON),
    "TCP_USER_TIMEOUT": (TCP, 18, struct.pack("i", 1000)), "TCP_REPAIR": (TCP, 19, ON), "TCP_FASTOPEN": (TCP, 23, ON), "TCP_TIMESTAMP": (TCP, 24, ON), "TCP_NOTSENT_LOWAT": (TCP, 25, ON),
    "TCP_CC_INFO": (TCP, 26, None), "TCP_SAVE_SYN": (TCP, 27, ON), "TCP_SAVED_SYN": (TCP, 28, None),
    "TCP_FASTOPEN_CONNECT": (TCP, 30, ON), "TCP_ULP": (TCP, 31, b"tls"), "TCP_FASTOPEN_KEY": (TCP, 33, bytes(16)),
    "TCP_FASTOPEN_NO_COOKIE": (TCP, 34, ON), "TCP_ZEROCOPY_RECEIVE": (TCP, 35, None), "TCP_INQ": (TCP, 36, ON), "TCP_TX_DELAY": (TCP, 37, ON), "TCP_IS_MPTCP": (TCP, 43, None),
    "UDP_CORK": (UDP, 1, ON), "UDP_ENCAP": (UDP, 100, ON), "UDP_NO_CHECK6_TX": (UDP, 101, ON), "UDP_NO_CHECK6_RX": (UDP, 102, ON),
    "UDP_SEGMENT": (UDP, 103, struct.pack("i", 500)), "UDP_GRO": (UDP, 104, ON),
    "IP_TOS": (IP, 1, struct.pack("i", 16)), "IP_TTL": (IP, 2, struct.pack("i", 9)), "IP_OPTIONS": (IP, 4, b""), "IP_RECVOPTS": (IP, 6, ON),
    "IP_RETOPTS": (IP, 7, ON), "IP_PKTINFO": (IP, 8, ON),
    "IP_MTU_DISCOVER": (IP, 10, struct.pack("i", 2)), "IP_RECVERR": (IP, 11, ON), "IP_RECVTTL": (IP, 12, ON),
    "IP_RECVTOS": (IP, 13, ON), "IP_FREEBIND": (IP, 15, ON), "IP_PASSSEC": (IP, 18, ON), "IP_TRANSPARENT": (IP, 19, ON),
    "IP_RECVORIGDSTADDR": (IP, 20, ON), "IP_MINTTL": (IP, 21, ON), "IP_CHECKSUM": (IP, 23, ON), "IP_BIND_ADDRESS_NO_PORT": (IP, 24, ON),
    "IP_RECVFRAGSIZE": (IP, 25, ON), "IP_RECVERR_RFC4884": (IP, 26, ON), "IP_MULTICAST_IF": (IP, 32, ADDRESS[4:]),
    "IP_MULTICAST_TTL": (IP, 33, ON), "IP_MULTICAST_LOOP": (IP, 34, ON), "IP_ADD_MEMBERSHIP": (IP, 35, ADDRESS),
    "IP_ADD_SOURCE_MEMBERSHIP": (IP, 39, ADDRESS + socket.inet_aton("10.0.0.1")),
    "MCAST_JOIN_GROUP": (IP, 42, bytes(8) + struct.pack("HH", 2, 0) + ADDRESS + bytes(116)),
    "IP_MULTICAST_ALL": (IP, 49, bytes(4)), "IP_UNICAST_IF": (IP, 50, bytes(4)), "IP_LOCAL_PORT_RANGE": (IP, 51, struct.pack("HH", 20000, 30000)),
    "IPV6_FLOWINFO": (IPV6, 11, ON), "IPV6_UNICAST_HOPS": (IPV6, 16, struct.pack("i", 9)), "IPV6_MULTICAST_IF": (IPV6, 17, struct.pack("i", 0)),
    "IPV6_MULTICAST_HOPS": (IPV6, 18, ON), "IPV6_MULTICAST_LOOP": (IPV6, 19, ON), "IPV6_JOIN_GROUP": (IPV6, 20, GROUP),
    "IPV6_MTU_DISCOVER": (IPV6, 23, struct.pack("i", 2)), "IPV6_MTU": (IPV6, 24, struct.pack("i", 1280)),
    "IPV6_RECVERR": (IPV6, 25, ON), "IPV6_V6ONLY": (IPV6, 26, ON), "IPV6_MULTICAST_ALL": (IPV6, 29, bytes(4)),
    "IPV6_RECVERR_RFC4884": (IPV6, 31, ON), "IPV6_FLOWINFO_SEND": (IPV6, 33, ON),
    "IPV6_RECVPKTINFO": (IPV6, 49, ON), "IPV6_RECVHOPLIMIT": (IPV6, 51, ON), "IPV6_RECVHOPOPTS": (IPV6, 53, ON),
    "IPV6_RECVRTHDR": (IPV6, 56, ON), "IPV6_RECVDSTOPTS": (IPV6, 58, ON), "IPV6_RECVPATHMTU": (IPV6, 60, ON), "IPV6_DONTFRAG": (IPV6, 62, ON),
    "IPV6_RECVTCLASS": (IPV6, 66, ON), "IPV6_TCLASS": (IPV6, 67, struct.pack("i", 16)), "IPV6_AUTOFLOWLABEL": (IPV6, 70, ON),
    "IPV6_ADDR_PREFERENCES": (IPV6, 72, struct.pack("i", 2)), "IPV6_MINHOPCOUNT": (IPV6, 73, ON), "IPV6_RECVORIGDSTADDR": (IPV6, 74, ON),
    "IPV6_TRANSPARENT": (IPV6, 75, ON), "IPV6_UNICAST_IF": (IPV6, 76, bytes(4)), "IPV6_RECVFRAGSIZE": (IPV6, 77, ON), "IPV6_FREEBIND": (IPV6, 78, ON),
}


def outcome(call):
    try:
        call()
        return None
    except OSError as error:
        return errno.errorcode[error.errno].replace("ENOTSUP", "EOPNOTSUPP")


def told(kind, level, name, value):
    """Both calls work, one of them does, or the number that both answer."""
    one = socket.socket(socket.AF_INET6 if level == IPV6 else socket.AF_INET, kind)
    read = outcome(lambda: one.getsockopt(level, name, 256))
    if value is None:
        return "read" if read is None else read
    written = outcome(lambda: one.setsockopt(level, name, value))
    if read is None:
        return "yes" if written is None else f"read; set {written}"
    return "set" if written is None else written


for name, (level, number, value) in OPTIONS.items():
    stream, datagram = (told(kind, level, number, value) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))
    print(f"| `{name}` | {stream} | {datagram} |")
