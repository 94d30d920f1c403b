//! A service that tests start in a namespace, to have a peer of the kernel's, and who compares what it sends back.

/// Python: whatever comes on a connection to port 7 of 10.0.0.2 goes back.
pub const ECHOES: &str = r"
import socket, threading
listener = socket.create_server(('10.0.0.2', 7))
def serve(stream):
    while part := stream.recv(1 << 16):
        stream.sendall(part)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Python: sends text to that service and compares what comes back, for so many seconds, by so many connections.
pub const COMPARES: &str = r"
import os, socket, sys, threading, time
end, count, rounds, wrong = time.time() + float(sys.argv[1]), int(sys.argv[2]), [], []
def run():
    stream = socket.create_connection(('10.0.0.2', 7))
    text = os.urandom(1 << 18)
    while time.time() < end:
        threading.Thread(target=stream.sendall, args=(text,)).start()
        came = bytearray()
        while len(came) < len(text):
            part = stream.recv(1 << 16)
            if not part:
                return wrong.append('the connection ended')
            came += part
        if came != text:
            return wrong.append('other bytes')
        rounds.append(1)
threads = [threading.Thread(target=run) for _ in range(count)]
[it.start() for it in threads]
[it.join() for it in threads]
assert not wrong and len(rounds) >= count, wrong
print('rounds', len(rounds))
";
