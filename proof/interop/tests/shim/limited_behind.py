"""Two programs, of which one writes much before the other looks: that goes in segments, and what follows past the lane has no more
credit than the limit allows. Arguments: the address, the command `firelane`."""
import faulthandler, os, socket, sys, time

from asking import ask

HOST = sys.argv[1]
PORT, RATE = 7777, 4_000_000
faulthandler.dump_traceback_later(25, exit=True)


def limit(rate):
    ask("flowadm", "set-flowprop", "-t", "-p", f"maxbw={rate // 1000}K", "served")


def write(sock, wake):
    os.read(wake, 1)
    try:
        while True:
            sock.sendall(bytes(1 << 16))
    except OSError:
        os._exit(0)


listener = socket.create_server((HOST, PORT))
wake, waker = os.pipe()
if os.fork() == 0:
    os.close(waker)
    write(listener.accept()[0], wake)
limit(RATE)
sock = socket.create_connection((HOST, PORT))
os.write(waker, b".")
# What is written until then finds nobody who could read past the lane.
time.sleep(0.2)
begin = time.monotonic()
came, marks = 0, []
while (now := time.monotonic()) < begin + 2.5:
    came += len(sock.recv(1 << 18))
    marks.append((now - begin, came))
# From the first byte on that is read, over any half a second: who has lent too much lets it come at once.
worst, first = 0, 0
for when, count in marks:
    while marks[first][0] < when - 0.5:
        first += 1
    worst = max(worst, count - marks[first][1])
rate = worst * 8 / 0.5
print(f"at most {rate / RATE:.2f} of the limit in half a second, {came * 8 / 2.5 / RATE:.2f} in all")
assert rate < 1.3 * RATE, (rate, marks)
