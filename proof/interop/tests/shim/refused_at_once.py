"""Who sends to a port of this host at which nobody hears is told so by the next call, also where others use the CPUs, and who hears there
is not waited for. By sockets with a peer, also one at port 0, and by those with IP_RECVERR or IPV6_RECVERR, whose queue has the error."""
import errno
import os
import select
import socket
import subprocess
import sys
import time

HOST = sys.argv[1]
TRIES = 100
SPINS = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def told(call):
    """Which error a call tells."""
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "nothing"


def closed_port(family, host):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.bind((host, 0))
        return one.getsockname()


def nobodys(family, host):
    """A port that no socket of this process had."""
    child = f"import socket; one = socket.socket({int(family)}, 2); one.bind(({host!r}, 0)); print(one.getsockname()[1])"
    return host, int(subprocess.check_output([sys.executable, "-c", child]))


def shared_port(family, host):
    """One whose socket of this process was waited for in vain, as another process' got what was sent there, and that both have closed."""
    shares = "import socket; one = socket.socket({}, 2); one.setsockopt(1, 15, 1); one.bind({}); print(flush=True); input()"
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind((host, 0))
        child = [sys.executable, "-c", shares.format(int(family), one.getsockname())]
        with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            # Who sends decides which of them gets it.
            assert any(read_of_another_sender(family, one) == "EAGAIN" for _ in range(64))
            other.kill()
        return one.getsockname()


def read_of_another_sender(family, one):
    """What the first read is told after another socket has sent some datagrams to this one."""
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        for _ in range(5):
            sender.sendto(b"x", one.getsockname())
    return [told(lambda: one.recv(1)) for _ in range(5)][0]


def queued(family, host, place):
    """What SO_ERROR tells of a datagram from a socket without a peer, if MSG_ERRQUEUE has it as well."""
    level, option = (socket.IPPROTO_IPV6, 25) if family == socket.AF_INET6 else (socket.IPPROTO_IP, 11)
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.bind((host, 0))
        one.setsockopt(level, option, 1)
        sent = told(lambda: one.sendto(b"x", place))
        if sent != "nothing":
            return f"{sent} of a former socket's"
        error = errno.errorcode.get(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        missing = told(lambda: one.recvmsg(1, 500, socket.MSG_ERRQUEUE))
        return error if missing == "nothing" else missing


def is_at_once(answers):
    """Where others take the lane's CPU for long it may come late now and then."""
    return answers.count("ECONNREFUSED") >= 0.9 * TRIES


def tell(what, answers):
    late = f"{answers.count('ECONNREFUSED')} of {TRIES}: {set(answers)}"
    print(what, "at once" if is_at_once(answers) else late)


def asked(ask):
    """Lists of answers; asked for anew where one of them was late, for others may have taken the CPUs all the while."""
    for _ in range(3):
        lists = ask()
        if all(is_at_once(answers) for answers in lists):
            break
    return lists


def refused(family, place):
    """What reads, poll and writes of sockets with a peer are told behind a datagram to it."""
    received, ready, sent = [], [], []
    for _ in range(TRIES):
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.setblocking(False)
            one.connect(place)
            one.send(b"x")
            received.append(told(lambda: one.recv(1, socket.MSG_DONTWAIT)))
            told(lambda: one.send(b"x"))
            ready.append("ECONNREFUSED" if select.select([one], [], [], 0)[0] else "nothing")
            sent.append(told(lambda: one.send(b"x")))
    return received, sent, ready


spinning = [subprocess.Popen([sys.executable, "-c", SPINS]) for _ in range(os.cpu_count())]
try:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, HOST)):
        places = (("nobody's", nobodys(family, host)), ("closed", closed_port(family, host)), ("shared", shared_port(family, host)))
        for kind, place in places:
            (answers,) = asked(lambda: [[queued(family, host, place) for _ in range(TRIES)]])
            tell(f"{kind}: the queue has it", answers)
        for kind, place in (*places, ("port 0", (host, 0))):
            received, sent, ready = asked(lambda: refused(family, place))
            tell(f"{kind}: a read is refused", received)
            tell(f"{kind}: a write is refused", sent)
            tell("poll says so", ready)
finally:
    for one in spinning:
        one.kill()
        one.wait()

HEARER = """import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("127.0.0.1", 0))
print(one.getsockname()[1], flush=True)
while one.recv(9) != b"end": pass"""
# Another process hears what comes, and says nothing.
with subprocess.Popen([sys.executable, "-c", HEARER], stdout=subprocess.PIPE) as hearer:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("127.0.0.1", int(hearer.stdout.readline())))
        began = time.monotonic()
        for _ in range(2000):
            one.send(b"x")
        took = time.monotonic() - began
        print("who hears is not waited for" if took < 2 else f"took {took:.2f} s")
        while hearer.poll() is None:
            told(lambda: one.send(b"end"))
            time.sleep(0.01)
