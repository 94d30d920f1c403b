"""A server that gives an accepted connection to a program of another user, as inetd does: what its client and the server see of that. Where
the user may have no sockets, what the program reads and writes is refused, and it ends."""
import os
import signal
import socket
import sys

HOST, USER = sys.argv[1], 65534
ECHO = """import os
def told(call):
    try:
        return call()
    except OSError as error:
        return error.errno
text = told(lambda: os.read(0, 100))
written = told(lambda: os.write(1, text)) if isinstance(text, bytes) else 0
os._exit(0 if text == b'hello' and written == 5 else 3 if text == 104 else 4)"""

with socket.create_server((HOST, 0)) as listener:
    server = os.fork()
    if server == 0:
        one, _ = listener.accept()
        # Who hangs is seen.
        signal.alarm(20)
        os.setgroups([]), os.setgid(USER), os.setuid(USER)
        for number in range(3):
            os.dup2(one.fileno(), number)
        os.execv("/usr/bin/python3", ["python3", "-S", "-c", ECHO])
    client = socket.create_connection(listener.getsockname())
client.sendall(b"hello")
client.settimeout(30)
try:
    print("client:", client.recv(100))
except OSError as error:
    print("client:", error)
print("program:", os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]))
