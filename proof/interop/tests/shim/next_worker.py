"""A server whose daemon was followed by another replaces its workers: each has the listener of the daemon that is gone, is told of its end
once, and does not go round."""
import errno, os, select, socket, sys, time

HOST, READY, FOLLOWED = sys.argv[1:4]
USERS = [int(user) for user in sys.argv[4:]]
SECOND = 1.0


def blocking(listener):
    """What accept says in a second, one after the other."""
    told, end = [], time.monotonic() + SECOND
    while time.monotonic() < end:
        try:
            told.append(listener.accept())
        except OSError as error:
            told.append(error.errno)
    return told


def polled(listener):
    """The same of who asks when epoll tells him to, and then until nothing waits."""
    listener.setblocking(False)
    told, end, turns = [], time.monotonic() + SECOND, 0
    with select.epoll() as waiting:
        waiting.register(listener, select.EPOLLIN)
        while time.monotonic() < end:
            if not waiting.poll(end - time.monotonic()):
                continue
            turns += 1
            told.append(None)
            while told[-1] != errno.EAGAIN and len(told) < 100_000:
                try:
                    told.append(listener.accept())
                except OSError as error:
                    told.append(error.errno)
    return [it for it in told if it not in (None, errno.EAGAIN)], turns


def counted(told):
    return {errno.errorcode.get(kind, kind): told.count(kind) for kind in set(told)}


def become(user):
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def worker(user, listener):
    """A worker that waits for its listener."""
    become(user)
    used = time.process_time()
    at_once, turns = polled(listener)
    listener.setblocking(True)
    later, used = blocking(listener), time.process_time() - used
    is_right = set(at_once) == set(later) == {errno.ENETDOWN} and len(at_once) <= 2 and turns <= 2
    is_right &= len(later) <= 4 and used < 0.5
    print("right" if is_right else f"as {user}: {counted(at_once)} in {turns} turns, {counted(later)}, {used:.2f} s", flush=True)


def replace(user, first, listener):
    """A new worker, who asks first in the first way."""
    child = os.fork()
    if child == 0:
        try:
            first(user, listener)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def only_blocking(user, listener):
    """A worker that blocks from the first call on."""
    become(user)
    told = blocking(listener)
    is_right = set(told) == {errno.ENETDOWN} and len(told) <= 4
    print("right" if is_right else f"as {user}: {counted(told)}", flush=True)


def shut(_, listener):
    """One that is told of what its parent has done."""
    try:
        listener.accept()
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)


server = socket.create_server((HOST, 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].close()
# While the daemon lives, one that its program has shut down says that, to a child, too.
stopped = socket.create_server((HOST, 0))
stopped.shutdown(socket.SHUT_RDWR)
replace(0, shut, stopped)
open(READY, "w").close()
while not os.path.exists(FOLLOWED):
    time.sleep(0.01)
for user in USERS:
    replace(user, worker, server)
    replace(user, only_blocking, server)
