# A forked child dies in the middle of a call on a socket that its parent has, too: the parent goes on with it. Prints what the parent can
# do; the kernel's is to be the same. There the call fails, and the child ends by itself.
import errno
import mmap
import os
import socket
import sys
import tempfile

HOST = sys.argv[1]
LENGTH = 8192


def told(call):
    try:
        return repr(call())
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def torn():
    """Memory that is not there: who copies it in user space dies of that."""
    with tempfile.TemporaryFile() as file:
        file.truncate(LENGTH)
        memory = mmap.mmap(file.fileno(), LENGTH)
        file.truncate(0)
        return memory


def dies(what):
    pid = os.fork()
    if pid == 0:
        try:
            what(torn())
        except OSError:
            pass
        os._exit(0)
    os.waitpid(pid, 0)


def until(sock, end):
    text = b""
    while not text.endswith(end):
        got = sock.recv(99999)
        if not got:
            break
        text += got
    return text[-len(end):]


server = socket.create_server((HOST, 0))
for calls in [["send"], ["recv"], ["send", "recv"]]:
    ours = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    for it in [ours, far]:
        it.settimeout(5)
    for call in calls:
        far.send(bytes(LENGTH))
        dies(ours.send if call == "send" else ours.recv_into)
    print("stream", calls, "sends:", told(lambda: ours.send(b"after")), told(lambda: until(far, b"after")))
    far.send(b"answer")
    print("stream", calls, "receives:", told(lambda: until(ours, b"answer")))
    ours.close()
    far.close()

for call in ["send", "recv"]:
    ours, far = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for it in [ours, far]:
        it.bind((HOST, 0))
        it.settimeout(5)
    ours.connect(far.getsockname())
    far.connect(ours.getsockname())
    far.send(b"before")
    dies(ours.send if call == "send" else ours.recv_into)
    print("datagrams", call, "sends:", told(lambda: ours.send(b"after")), told(lambda: far.recv(99)))
    far.send(b"answer")
    # What the dead had begun to receive may be lost.
    print("datagrams", call, "receives:", told(lambda: until(ours, b"answer")))
    ours.close()
    far.close()
server.close()
