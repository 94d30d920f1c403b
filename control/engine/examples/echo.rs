//! Two netstacks in one process, joined by a wire of memory; one echoes what the other says.
//! Run it with `cargo run --release --package firelane --example echo`.

use std::io::{Read, Write};

use firelane::{Stack, TcpListener, TcpStream, WireConfig, wire};

fn main() -> std::io::Result<()> {
    let (left, right) = wire(WireConfig::default());
    let server = Stack::builder().interface(left).address("10.0.0.1/24")?.build()?;
    let client = Stack::builder().interface(right).address("10.0.0.2/24")?.build()?;

    let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
    let echoing = std::thread::spawn(move || -> std::io::Result<u64> {
        let (stream, peer) = listener.accept()?;
        println!("server: {peer} has connected");
        std::io::copy(&mut &stream, &mut &stream)
    });

    let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
    stream.write_all(b"a frame's whole life")?;
    let mut answer = [0; 20];
    stream.read_exact(&mut answer)?;
    println!("client: {}", String::from_utf8_lossy(&answer));
    drop(stream);
    println!("server: {} bytes echoed", echoing.join().expect("the server does not panic")?);
    Ok(())
}
