"""What TCP_INFO says of sockets before, during and after a connection, one line each: their state and what they count."""
import errno, select, socket, struct, sys, time

TCP = socket.IPPROTO_TCP
HOST = sys.argv[1]
CLOSE, LISTEN, ESTABLISHED = 7, 10, 1


def info(sock):
    return sock.getsockopt(TCP, socket.TCP_INFO, 240)


def word(sock, at):
    return struct.unpack_from("I", info(sock), at)[0]


def until(what, check):
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def listener_says(sock):
    return info(sock)[0], word(sock, 24), word(sock, 28)


for family, host in (socket.AF_INET, HOST), (socket.AF_INET6, "::ffff:" + HOST):
    door = socket.socket(family)
    print("fresh", info(door)[0], len(info(door)))
    door.bind((host, 0))
    print("bound", info(door)[0])
    door.listen(5)
    print("listening", listener_says(door))
    callers = []
    for count in range(1, 4):
        callers.append(socket.create_connection(door.getsockname()[:2]))
        until("it waits", lambda: listener_says(door)[1] == count)
    print("three wait", listener_says(door))
    taken, _ = door.accept()
    print("two wait", listener_says(door))
    for backlog in (1, 70, 3):
        door.listen(backlog)
        # Somebody waits for the descriptor, and nothing but that changes.
        with select.epoll() as given:
            given.register(door)
        print("listens again", listener_says(door), len(select.select([door], [], [], 0)[0]))
    # Nothing has come, for as long as there is a connection.
    print("quiet", info(taken)[0], word(taken, 52) < 5000, word(callers[0], 52) < 5000, word(callers[0], 44) < 5000)
    callers[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    callers[0].close()
    until("it is reset", lambda: info(taken)[0] != ESTABLISHED)
    print("reset", info(taken)[0])
    door.close()
    # Nobody listens there any more.
    gone = socket.socket(family)
    print("refused", errno.errorcode[gone.connect_ex((host, 1))], info(gone)[0])
