//! The same sockets as tokio sees them.

use firelane::{Queue, Stack, TcpListener, TcpStream, WireConfig, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn stack(end: impl Into<Queue>, n: u8) -> Stack {
    let builder = Stack::builder().interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
    builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
}

#[test]
fn tokio_tasks_share_one_thread() {
    let (left, right) = wire(WireConfig::default());
    let (server, client) = (stack(left, 1), stack(right, 2));
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let serving = async {
            let (mut stream, _) = listener.accept_async().await.unwrap();
            let mut line = [0; 5];
            stream.read_exact(&mut line).await.unwrap();
            stream.write_all(&line).await.unwrap();
            AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        };
        let asking = async {
            let mut stream = TcpStream::connect_async(&client, "10.0.0.1:7".parse().unwrap()).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        assert_eq!(tokio::join!(serving, asking).1, "hello");
    });
}
