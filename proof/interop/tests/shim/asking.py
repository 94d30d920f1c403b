"""What scripts ask of the command `firelane`, which is their second argument: from outside, as its socket is the kernel's."""
import os, subprocess, sys


def ask(*words):
    environment = {**os.environ, "LD_PRELOAD": ""}
    return subprocess.run([sys.argv[2], *words], env=environment, check=True, capture_output=True, text=True).stdout
