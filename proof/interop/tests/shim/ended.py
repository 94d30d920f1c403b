"""What TCP_INFO says of connections that have ended, and of sockets that never had one, one line each."""
import errno, socket, struct, sys, time

TCP = socket.IPPROTO_TCP
HOST = sys.argv[1]
CLOSE = 7
# Their places in struct tcp_info (include/uapi/linux/tcp.h).
WORDS = {"rto": 8, "snd_mss": 16, "unacked": 24, "sacked": 28, "lost": 32, "retrans": 36, "rttvar": 72, "ssthresh": 76,
         "cwnd": 80, "reordering": 88, "total_retrans": 100, "segs_out": 136, "segs_in": 140, "min_rtt": 148,
         "data_segs_in": 152, "data_segs_out": 156, "delivered_ce": 196, "ooopack": 224, "rehash": 236}
LONGS = {"pacing": 104, "max_pacing": 112, "acked": 120, "received": 128, "sent": 200, "retrans_bytes": 208}
HALVES = {"total_rto": 240, "total_rto_recoveries": 242}
TAIL = {"total_rto_time": 244, "received_ce": 248, "e1_bytes": 264, "ce_bytes": 272}


def info(sock):
    # An older kernel says less.
    return sock.getsockopt(TCP, socket.TCP_INFO, 1024).ljust(280, b"\0")


def numbers(sock):
    raw = info(sock)
    told = {name: struct.unpack_from("I", raw, at)[0] for name, at in (WORDS | TAIL).items()}
    told |= {name: struct.unpack_from("Q", raw, at)[0] for name, at in LONGS.items()}
    told |= {name: struct.unpack_from("H", raw, at)[0] for name, at in HALVES.items()}
    return told | {"state": raw[0], "options": raw[5] & 1}


def until(what, check):
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def pair(family, host, by_segments):
    door = socket.socket(family)
    if by_segments:
        # Who wants to know of hops wants packets (IP_MINTTL).
        door.setsockopt(socket.IPPROTO_IP, 21, 1)
    door.bind((host, 0))
    door.listen()
    caller = socket.create_connection(door.getsockname()[:2])
    taken, _ = door.accept()
    door.close()
    return caller, taken


def carry(caller, taken):
    for frm, to, count in (caller, taken, 10000), (taken, caller, 500):
        frm.sendall(b"x" * count)
        while count:
            count -= len(to.recv(count))


def closed(sock):
    return numbers(sock)["state"] == CLOSE


def tell(what, sock, by_segments):
    until(what, lambda: closed(sock))
    told = numbers(sock)
    print(what, {name: told[name] for name in ("state", "options", "unacked", "lost", "retrans", "total_retrans",
                                               "retrans_bytes", "total_rto", "total_rto_recoveries", "total_rto_time",
                                               "received_ce", "e1_bytes", "ce_bytes", "ooopack", "rehash",
                                               "delivered_ce", "reordering", "ssthresh", "max_pacing")})
    # Linux counts SYN and FIN with the text; text is what both say.
    print(what, told["acked"] // 100, told["received"] // 100)
    if by_segments:
        print(what, told["sent"], told["data_segs_in"] > 0, told["data_segs_out"] > 0, told["segs_in"] > 2,
              told["segs_out"] > 2, 0 < told["min_rtt"] < 10**6, told["rto"] >= 200000, told["cwnd"] >= 10,
              told["snd_mss"] > 500)
    # Silence goes on, everything else stays.
    before = struct.unpack_from("I", info(sock), 56)[0]
    time.sleep(0.05)
    later = numbers(sock)
    print(what, struct.unpack_from("I", info(sock), 56)[0] >= before + 40, later == told)


for family, host in (socket.AF_INET, HOST), (socket.AF_INET6, "::ffff:" + HOST):
    fresh = numbers(socket.socket(family))
    print("fresh", {name: fresh[name] for name in fresh if name not in ("rto",)})
    for by_segments in True, False:
        caller, taken = pair(family, host, by_segments)
        carry(caller, taken)
        caller.shutdown(socket.SHUT_WR)
        assert taken.recv(1) == b""
        taken.shutdown(socket.SHUT_WR)
        assert caller.recv(1) == b""
        tell("who ended first", caller, by_segments)
        tell("who ended last", taken, by_segments)
        caller, taken = pair(family, host, by_segments)
        carry(caller, taken)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        taken.close()
        tell("who was reset", caller, by_segments)
        copy = caller.dup()
        caller.close()
        print("a copy knows it, too", numbers(copy)["received"])
    gone = socket.socket(family)
    print("refused", errno.errorcode[gone.connect_ex((host, 1))], info(gone)[0], numbers(gone)["acked"])
