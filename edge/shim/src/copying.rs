//! `sendfile` to a socket of ours: by copying through this process.

use core::ffi::c_int;

use rustix::io::Errno;

use crate::buffers::Source;
use crate::handlers::Seen;
use crate::socket::Held;
use crate::sys;

/// How much is read from a file at a time.
const CHUNK: usize = 32 << 10;
/// So much is read though there is no room for it: the socket says what becomes of that.
const PAGE: usize = 4096;

/// Sends `len` bytes of a file, from `begin` on or, without one, from where the file stands, which then moves.
pub(crate) fn send_file(socket: Held, from: c_int, begin: Option<u64>, len: usize) -> Result<usize, Errno> {
    let (file, seen) = (sys::borrow(from), Seen::now());
    let place = match begin {
        Some(begin) => begin,
        None => rustix::fs::seek(file, rustix::fs::SeekFrom::Current(0)).map_err(not_a_file)?,
    };
    let mut buffer = [0; CHUNK];
    let mut done = 0;
    // One that runs between two sends ends the second in Linux, if that waits.
    while done < len && !(done > 0 && seen.is_old()) {
        let part = (len - done).min(worth_reading(&socket));
        let read = rustix::io::pread(file, &mut buffer[..part], place + done as u64).map_err(not_a_file);
        let sent = match read {
            Ok(0) => break,
            Ok(read) => socket.send(Source::of(&buffer[..read]).source(), 0, None).map(|sent| (sent, read)),
            Err(errno) => Err(errno),
        };
        match sent {
            Ok((sent, read)) => {
                done += sent;
                if sent < read {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    if begin.is_none() {
        rustix::fs::seek(file, rustix::fs::SeekFrom::Start(place + done as u64))?;
    }
    Ok(done)
}

/// What is read beyond a stream's room is read again later.
fn worth_reading(socket: &Held) -> usize {
    socket.stream().map_or(CHUNK, |stream| stream.end().room().clamp(PAGE, CHUNK))
}

/// What cannot be read at a place is not for `sendfile`.
fn not_a_file(errno: Errno) -> Errno {
    if errno == Errno::SPIPE { Errno::INVAL } else { errno }
}
