"""A program of another user: whether it gets sockets, how many, and what it is told. Arguments: the user, how many it tries.

Who becomes somebody else has come to the daemon as who he was: a program that the other one begins has not.
"""
import errno, os, socket, sys

user, count = int(sys.argv[1]), int(sys.argv[2])
if os.getuid() != user:
    os.setgroups([]), os.setgid(user), os.setuid(user)
    os.execv(sys.executable, [sys.executable, *sys.argv])
said, say = os.pipe()
os.dup2(say, 2), os.close(say)
made = []
try:
    while len(made) < count:
        made.append(socket.socket())
    answer = "no end"
except OSError as error:
    answer = errno.errorcode[error.errno]
os.close(2)
print(len(made), answer, os.read(said, 1000).decode().strip(), sep="; ")
