import java.io.*;
import java.net.*;

/** Strings to an echo server and back, over plain sockets. Speaks as the benchmark's peers do. */
public class RoundTrips {
    public static void main(String[] args) throws IOException {
        var address = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        if (args[0].equals("serve")) serve(address); else ask(address);
    }

    static void serve(InetSocketAddress address) throws IOException {
        var server = new ServerSocket();
        server.bind(address);
        var thread = new Thread(() -> {
            try {
                while (true) echo(server.accept());
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
        thread.setDaemon(true);
        thread.start();
        System.out.println("ready");
        while (System.in.read() >= 0) {}
    }

    static BufferedReader reader(Socket socket) throws IOException {
        return new BufferedReader(new InputStreamReader(socket.getInputStream()));
    }

    static PrintWriter writer(Socket socket) throws IOException {
        return new PrintWriter(new OutputStreamWriter(socket.getOutputStream()), true);
    }

    static void echo(Socket socket) throws IOException {
        socket.setTcpNoDelay(true);
        var in = reader(socket);
        var out = writer(socket);
        for (var line = in.readLine(); line != null; line = in.readLine()) {
            out.println(line);
        }
    }

    static void ask(InetSocketAddress address) throws IOException {
        var commands = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        try (var socket = new Socket()) {
            for (var line = commands.readLine(); line != null; line = commands.readLine()) {
                if (!socket.isConnected()) {
                    socket.connect(address);
                    socket.setTcpNoDelay(true);
                }
                var in = reader(socket);
                var out = writer(socket);
                int count = Integer.parseInt(line);
                long start = System.nanoTime();
                for (int n = 0; n < count; n++) {
                    out.println("Hello, server: this is number " + n);
                    if (in.readLine() == null) throw new EOFException();
                }
                System.out.println(System.nanoTime() - start);
            }
        }
    }
}
