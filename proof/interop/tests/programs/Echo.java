import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;

/** An echo server and its client, with a thread for each connection or with one selector for all. */
public class Echo {
    static final int LENGTH = 200_000;

    public static void main(String[] args) throws Exception {
        var address = new InetSocketAddress(args[2], Integer.parseInt(args[3]));
        var isPlain = args[1].equals("plain");
        if (args[0].equals("serve")) {
            if (isPlain) servePlain(address); else serveNio(address);
        } else {
            for (int n = 0; n < 5; n++) {
                if (isPlain) askPlain(address); else askNio(address);
            }
            System.out.println("good");
        }
    }

    static void servePlain(InetSocketAddress address) throws IOException {
        var server = new ServerSocket();
        server.bind(address);
        while (true) {
            var socket = server.accept();
            new Thread(() -> {
                try (socket) {
                    socket.getInputStream().transferTo(socket.getOutputStream());
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }).start();
        }
    }

    static void serveNio(InetSocketAddress address) throws IOException {
        var selector = Selector.open();
        var server = ServerSocketChannel.open();
        server.bind(address).configureBlocking(false);
        server.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (var keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
                var key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    var channel = server.accept();
                    channel.configureBlocking(false);
                    channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(10_000));
                    continue;
                }
                var channel = (SocketChannel) key.channel();
                var buffer = (ByteBuffer) key.attachment();
                if (channel.read(buffer) < 0 && buffer.position() == 0) {
                    channel.close();
                    continue;
                }
                buffer.flip();
                channel.write(buffer);
                buffer.compact();
                key.interestOps(buffer.position() > 0 ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_READ);
            }
        }
    }

    static byte[] text() {
        var text = new byte[LENGTH];
        new Random(7).nextBytes(text);
        return text;
    }

    static void check(byte[] got, byte[] sent) {
        if (!Arrays.equals(got, sent)) throw new AssertionError("other bytes");
    }

    static void askPlain(InetSocketAddress address) throws Exception {
        try (var socket = new Socket(address.getAddress(), address.getPort())) {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(20_000);
            var sent = text();
            var writer = new Thread(() -> {
                try {
                    socket.getOutputStream().write(sent);
                    socket.shutdownOutput();
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
            writer.start();
            check(socket.getInputStream().readAllBytes(), sent);
            writer.join();
        }
    }

    static void askNio(InetSocketAddress address) throws Exception {
        try (var channel = SocketChannel.open(); var selector = Selector.open()) {
            channel.configureBlocking(false);
            channel.connect(address);
            var key = channel.register(selector, SelectionKey.OP_CONNECT);
            var sent = ByteBuffer.wrap(text());
            var got = ByteBuffer.allocate(LENGTH);
            while (got.hasRemaining()) {
                if (selector.select(20_000) == 0) throw new AssertionError("nothing comes");
                selector.selectedKeys().clear();
                if (key.isConnectable() && channel.finishConnect()) {
                    key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                }
                if (key.isReadable() && channel.read(got) < 0) throw new AssertionError("it ends early");
                if (key.isWritable()) channel.write(sent);
                if (!sent.hasRemaining()) key.interestOps(SelectionKey.OP_READ);
            }
            check(got.array(), text());
        }
    }
}
