"""What Python's own libraries make of sockets: asyncio, http.server, socketserver, ssl."""
import asyncio, http.client, http.server, os, socketserver, ssl, subprocess, sys, tempfile, threading

HOST = sys.argv[1]


async def streams():
    async def serve(reader, writer):
        writer.write(await reader.readexactly(5) * 3)
        await writer.drain()
        writer.close()

    async def ask(n):
        reader, writer = await asyncio.open_connection(HOST, 9000)
        writer.write(b"%05d" % n)
        assert await reader.read() == b"%05d" % n * 3
        writer.close()

    server = await asyncio.start_server(serve, HOST, 9000)
    await asyncio.gather(*[ask(n) for n in range(100)])
    server.close()


def web():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = b"x" * int(self.path[1:])
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer((HOST, 9001), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    connection = http.client.HTTPConnection(HOST, 9001)
    for size in (0, 1, 1000, 1_000_000):
        connection.request("GET", f"/{size}")
        assert len(connection.getresponse().read()) == size
    server.shutdown()


def forking():
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(line.upper())

    server = socketserver.ForkingTCPServer((HOST, 9002), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    import socket

    for n in range(5):
        with socket.create_connection((HOST, 9002)) as s:
            s.sendall(b"line %d\n" % n)
            # The child of the server, which is this program, has copies of both ends.
            s.shutdown(socket.SHUT_WR)
            assert s.recv(99) == b"LINE %d\n" % n
    server.shutdown()


def secured():
    import socket

    with tempfile.TemporaryDirectory() as folder:
        key, certificate = os.path.join(folder, "key"), os.path.join(folder, "certificate")
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
        subprocess.run(request + ["-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    listener = socket.create_server((HOST, 9003))

    def serve():
        with context.wrap_socket(listener.accept()[0], server_side=True) as s:
            s.sendall(s.recv(99)[::-1] * 10_000)

    threading.Thread(target=serve).start()
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with trusting.wrap_socket(socket.create_connection((HOST, 9003))) as s:
        s.sendall(b"secret")
        got = b""
        while len(got) < 60_000:
            got += s.recv(99_999)
    assert got == b"terces" * 10_000


asyncio.run(streams())
web()
forking()
secured()
print("good")
