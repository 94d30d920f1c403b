"""Programs that are started with a cleaned environment, with one that was chosen, and with all of it: who is on the netstack."""
import os
import subprocess
import sys

HOST = sys.argv[1]
# An address of the netstack's alone.
ASK = f"import socket; print(0 if socket.socket().connect_ex(('{HOST}', 1)) == 111 else 1, end=' ', flush=True); one = socket.socket(); one.bind(('{HOST}', 0))"
WORDS = ["/usr/bin/python3", "-c", ASK]
CLEAN = {"PATH": "/usr/bin:/bin"}
CHOSEN = {it: value for it, value in os.environ.items() if it != "LD_PRELOAD"}


def forked(start):
    child = os.fork()
    if child == 0:
        os.close(2)
        start()
        os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def emptied(start):
    """libc's own environment is empty."""
    os.environ.clear()
    start()


STARTS = {
    "execve": lambda env: os.execve(WORDS[0], WORDS, env),
    "fexecve": lambda env: os.execve(os.open(WORDS[0], os.O_RDONLY), WORDS, env),
    "posix_spawn": lambda env: os._exit(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(WORDS[0], WORDS, env), 0)[1])),
    "subprocess": lambda env: os._exit(subprocess.run(WORDS, env=env, stderr=subprocess.DEVNULL).returncode),
    "env": lambda env: os._exit(subprocess.run(["env", "-i", *(f"{it}={value}" for it, value in env.items()), *WORDS], stderr=subprocess.DEVNULL).returncode),
}
for name, start in STARTS.items():
    print(name, flush=True, end=" ")
    print([forked(lambda: start(env)) for env in (CLEAN, {}, dict(os.environ), CHOSEN)], flush=True)
print("execv", [forked(lambda: emptied(lambda: os.execv(WORDS[0], WORDS)))], flush=True)
