"""Sixteen clients of memcached at once: what each stores, it gets."""
import socket, sys, threading

failed = []


def client(n):
    with socket.create_connection((sys.argv[1], 11211)) as s:
        for i in range(20):
            value = b"%d-%d" % (n, i)
            s.sendall(b"set k%d 0 0 %d\r\n%s\r\nget k%d\r\n" % (n, len(value), value, n))
            answer = b""
            while not answer.endswith(b"END\r\n"):
                answer += s.recv(999)
            if b"\r\n" + value + b"\r\n" not in answer:
                failed.append(answer)


threads = [threading.Thread(target=client, args=(n,)) for n in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failed, failed
print("good")
