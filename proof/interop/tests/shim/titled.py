"""A child that has its listener from its parent, writes over its environment and asks for nothing; it says its number and waits."""

import ctypes
import os
import socket
import sys
import time

listener = socket.create_server(("", 5001))
other = socket.socket(socket.AF_UNIX)
if os.fork():
    os.wait()
    sys.exit()
with open("/proc/self/stat") as file:
    # What follows the command, which may have blanks, begins with the third field.
    fields = file.read().rsplit(")", 1)[1].split()
begin, end = int(fields[50 - 3]), int(fields[51 - 3])
ctypes.memset(begin, 0, end - begin)
with open("/proc/self/environ", "rb") as file:
    assert b"FIRELANE" not in file.read()
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
