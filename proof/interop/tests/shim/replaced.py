"""As Java closes a socket on which another thread reads: no more is sent, another file is put under its number, and a signal ends the call,
which just then is awake."""
import os
import signal
import socket
import sys
import threading
import time

HOST = sys.argv[1]
listener = socket.create_server((HOST, 0), backlog=64)
dead, _ = socket.socketpair()
dead.shutdown(socket.SHUT_RDWR)


class Ended(Exception):
    pass


def raises(*_):
    raise Ended


# Only the main thread runs Python's handlers, so that one reads.
signal.signal(signal.SIGUSR1, raises)
signal.siginterrupt(signal.SIGUSR1, True)
main = threading.get_ident()
for after in (0.05, 0.4):
    ended = 0
    for n in range(6):
        client = socket.create_connection(listener.getsockname())
        server = listener.accept()[0]

        def close():
            time.sleep(after)
            client.shutdown(socket.SHUT_WR)
            # As long as the call takes to wake up and sleep again, more or less.
            time.sleep(n * 40e-6)
            os.dup2(dead.fileno(), client.fileno())
            signal.pthread_kill(main, signal.SIGUSR1)

        # Nobody waits for ever.
        late = threading.Timer(after + 3, lambda: server.send(b"late"))
        thread = threading.Thread(target=close)
        late.start()
        thread.start()
        begin = time.monotonic()
        try:
            os.read(client.fileno(), 100)
        except (Ended, OSError):
            pass
        ended += time.monotonic() - begin < after + 2
        late.cancel()
        try:
            thread.join()
        except Ended:
            pass
        client.close()
        server.close()
    print(after, ended)
print("end")
