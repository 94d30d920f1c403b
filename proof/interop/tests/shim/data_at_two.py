"""What the library says does not come into a file of the program's that has number 2, but where the program puts its errors after."""
import os, socket, sys


def is_told():
    """Makes a socket that no netstack has, whose maker is told so, once."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


os.close(2)
data = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600)
os.write(data, b"MAGIC")
is_told()
os.write(data, b"END")
print(data, os.pread(data, 999, 0))
os.close(2)
ours, theirs = socket.socketpair()
# One of the two has number 2.
is_told()
ours.setblocking(False), theirs.setblocking(False)
for one in ours, theirs:
    try:
        print(one.recv(999))
    except BlockingIOError:
        print("nothing")
held = ours.detach(), theirs.detach()
reader, writer = os.pipe()
os.set_blocking(reader, False)
os.dup2(writer, 2)
is_told()
os.write(writer, b":")
print(os.read(reader, 9999).split(b":")[0])
