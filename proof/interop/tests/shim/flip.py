"""Two programs send each other bytes as fast as they can, while somebody else changes how they are carried. Arguments: the
address, how many seconds at the most; `serve` or `join` for one of the two only. SIGUSR1 to the process whose number is printed
first ends it before."""
import os, random, signal, socket, sys, threading, time

HOST, SECONDS, ROLE = sys.argv[1], float(sys.argv[2]), (sys.argv[3:] or ["both"])[0]
PORT = {"both": 0}.get(ROLE, 7777)
PATTERN = bytes(n * 31 & 0xFF ^ n >> 8 & 0xFF for n in range(1 << 16)) * 2


STOP = threading.Event()

# How much further than its peer each may be, so that windows stay open and what is tested is the change alone.
AHEAD = 300_000


def pump(sock, seed, state):
    chance, end = random.Random(seed), time.monotonic() + SECONDS
    sent = 0
    while time.monotonic() < end and not state["over"] and not STOP.is_set():
        count = min(chance.randrange(1, 60000), state["got"] + AHEAD - sent)
        if count <= 0 or chance.random() < 0.01:
            time.sleep(0.0005)
        else:
            sent += sock.send(PATTERN[sent % 65536 :][:count])
    sock.shutdown(socket.SHUT_WR)


def both_ways(sock, seed):
    state = {"got": 0, "over": False}
    sender = threading.Thread(target=pump, args=(sock, seed, state))
    sender.start()
    chance, got = random.Random(-seed), 0
    while data := sock.recv(chance.randrange(1, 60000)):
        assert data == PATTERN[got % 65536 :][: len(data)], f"wrong bytes behind {got}"
        got += len(data)
        state["got"] = got
    state["over"] = True
    sender.join()
    print(f"{got} bytes", flush=True)


print(os.getpid(), flush=True)
signal.signal(signal.SIGUSR1, lambda *_: STOP.set())
if ROLE == "join":
    both_ways(socket.create_connection((HOST, PORT)), 1)
    sys.exit()
listener = socket.create_server((HOST, PORT))
if ROLE == "serve":
    print("listens", flush=True)
    both_ways(listener.accept()[0], 2)
    sys.exit()
child = os.fork()
if child:
    signal.signal(signal.SIGUSR1, lambda *_: (STOP.set(), os.kill(child, signal.SIGUSR1)))
else:
    both_ways(socket.create_connection(listener.getsockname()), 1)
    os._exit(0)
both_ways(listener.accept()[0], 2)
assert os.waitpid(child, 0)[1] == 0
