//! A service that tests start in a namespace, to have a peer of the kernel's.

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
