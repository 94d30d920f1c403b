//! What connections hold whose clients are slow: little, however many there are. A binary of its own, as it measures the
//! process.

use std::time::Duration;

use firelane_http::{Files, serve};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

const CLIENTS: usize = 64;
/// What all of them may hold together.
const HELD_MAX: usize = 8 << 20;

/// Memory of the process that is no file's, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn slow_clients_hold_next_to_nothing() {
    let folder = std::env::temp_dir().join(format!("firelane-http-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("big"), vec![b'x'; 1 << 20]).unwrap();
    let files = Files::new(&folder).unwrap();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // Threads that have ended their work keep some of its memory, whoever the clients are.
    let runtime = runtime.enable_time().max_blocking_threads(2).build().unwrap();
    let begins = [
        // It takes nothing of what it has asked for.
        vec![b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()],
        // It says a byte of the head, or of the body, and then nothing.
        vec![b"G".to_vec(), b"E".to_vec()],
        vec![b"PUT /up HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".to_vec(), b"h".to_vec()],
    ];
    let before = memory();
    for pieces in begins {
        let held = runtime.block_on(memory_with(&files, &pieces)).saturating_sub(before);
        assert!(held < HELD_MAX, "{held} bytes by clients that say {pieces:?}");
    }
    drop(runtime);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The process' memory with clients that say `pieces` and do not listen.
async fn memory_with(files: &Files, pieces: &[Vec<u8>]) -> usize {
    let (mut clients, mut services) = (Vec::<DuplexStream>::new(), tokio::task::JoinSet::new());
    for _ in 0..CLIENTS {
        let (client, server) = duplex(1024);
        let files = files.clone();
        services.spawn(async move { serve(server, &files).await });
        clients.push(client);
    }
    for piece in pieces {
        for client in &mut clients {
            client.write_all(piece).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(services.len(), CLIENTS, "all are served");
    let held = memory();
    services.shutdown().await;
    held
}
