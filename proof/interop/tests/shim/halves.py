"""A message of sendmmsg(2) that was sent in part is the last of its call: who goes on behind it has sent all of his text."""
import hashlib
import os
import socket
import struct
import sys

sys.dont_write_bytecode = True
from conversing import LIBC, many, passed

HOST, PIECE, WHOLE = sys.argv[1], 1 << 16, 1 << 25
TEXT = b"".join(struct.pack("<I", number) for number in range(WHOLE // 4))
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
listener.bind((HOST, 0))
listener.listen()
number = os.fork()
if not number:
    reader = socket.create_connection(listener.getsockname())
    digest = hashlib.sha256()
    while text := reader.recv(1 << 14):
        digest.update(text)
    print(digest.hexdigest() == hashlib.sha256(TEXT).hexdigest(), flush=True)
    os._exit(0)
writer = listener.accept()[0]
writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
writer.setblocking(False)
sent = halves = behind = 0
while sent < WHOLE:
    messages, _alive = many([TEXT[sent:sent + PIECE], TEXT[sent + PIECE:sent + 2 * PIECE]])
    try:
        _, told = passed(LIBC.sendmmsg, writer, messages, 0)
    except BlockingIOError:
        continue
    lengths = [length for length, _ in told]
    whole = [message.hdr.iov[0].len for message in messages]
    halves += lengths[-1] < whole[len(lengths) - 1]
    behind += any(length < expected for length, expected in zip(lengths[:-1], whole))
    sent += sum(lengths)
writer.close()
os.waitpid(number, 0)
print("some in part", halves > 0, "behind them", behind)
