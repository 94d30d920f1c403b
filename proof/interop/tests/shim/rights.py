"""A program of another user: whether it gets sockets, how many, and what it is told. Arguments: the user, how many it tries."""
import errno, os, socket, sys

user, count = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([]), os.setgid(user), os.setuid(user)
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
