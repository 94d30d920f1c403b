"""Who has hardly any address space left reads what a peer has written to a connection that his parent has looked at and hands to him,
as vsftpd's sessions do.

narrowed.py
narrowed.py PORT
"""
import mmap
import os
import resource
import select
import socket
import subprocess
import sys
import time

if len(sys.argv) > 1:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as peer:
        # When its other end has been looked at, so that what is written goes past the lane.
        assert peer.recv(5) == b"ready"
        peer.sendall(b"x" * 1000)
        peer.shutdown(socket.SHUT_WR)
        print("answered", peer.recv(100), flush=True)
    sys.exit()

listener = socket.create_server(("127.0.0.1", 0))
mine, theirs = socket.socketpair()
if not os.fork():
    resource.setrlimit(resource.RLIMIT_AS, (300 << 20,) * 2)
    own = socket.create_server(("127.0.0.1", 0))
    taken, size = [], 64 << 20
    while size >= 1 << 20:
        try:
            taken.append(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError:
            size >>= 1
    handed = socket.socket(fileno=socket.recv_fds(theirs, 1, 1)[1][0])
    handed.settimeout(20)
    count = 0
    while text := handed.recv(4096):
        count += len(text)
    print("read", count, flush=True)
    handed.send(b"thanks")
    os._exit(0)
peer = subprocess.Popen([sys.executable, __file__, str(listener.getsockname()[1])], stdout=subprocess.PIPE)
end = listener.accept()[0]
end.send(b"ready")
select.select([end], [], [], 10)
# The joint is open: only now is there something in it.
time.sleep(0.1)
socket.send_fds(mine, [b"x"], [end.fileno()])
end.close()
os.wait()
print(peer.communicate()[0])
