//! A connection to the daemon that is waited for: after a while it is said once that nothing comes, and in the end it is given up.
//!
//! Called by `client.rs`. A daemon that hangs, or has been stopped, would leave whoever started a command without a word until the end.

use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long is waited, and what happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// When it is said that nothing comes; never, if that is no news.
    pub(crate) notice: Option<Duration>,
    /// When it is given up.
    pub(crate) end: Duration,
    /// Says it.
    pub(crate) say: fn(&str),
}

/// The connection.
pub(crate) struct Patient {
    stream: UnixStream,
    patience: Patience,
}

impl Patient {
    pub(crate) fn new(stream: UnixStream, patience: Patience) -> Self {
        Self { stream, patience }
    }

    /// The connection itself, for whoever waits without an end.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Does `act` until it has done something, and says meanwhile what is to be said.
    fn patiently(&mut self, mut act: impl FnMut(&mut UnixStream) -> Result<usize>) -> Result<usize> {
        let begun = Instant::now();
        loop {
            let wait = self.patience.notice.unwrap_or(self.patience.end);
            let left = wait.min(self.patience.end).saturating_sub(begun.elapsed());
            // A time of zero would be without an end.
            let left = left.max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            self.stream.set_write_timeout(Some(left))?;
            let done = act(&mut self.stream);
            let is_late = done.as_ref().is_err_and(|it| it.kind() == ErrorKind::WouldBlock);
            if !is_late || begun.elapsed() >= self.patience.end {
                return done;
            }
            // Once is enough.
            if self.patience.notice.take().is_some() {
                let end = self.patience.end.as_secs();
                (self.patience.say)(&format!(
                    "firelaned does not answer yet; it is waited for, {end} seconds at most"
                ));
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.patiently(|stream| stream.read(buffer))
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.patiently(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static SAID: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn who_does_not_answer_is_told_of_once_and_given_up_in_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let say = |text: &str| {
            assert!(text.starts_with("firelaned does not answer yet"), "{text}");
            SAID.fetch_add(1, Ordering::Relaxed);
        };
        let [notice, end] = [10, 40].map(Duration::from_millis);
        let mut patient = Patient::new(ours, Patience { notice: Some(notice), end, say });
        let mut text = [0; 8];
        theirs.write_all(b"at once").unwrap();
        assert_eq!(patient.read(&mut text).unwrap(), 7);
        assert_eq!(SAID.load(Ordering::Relaxed), 0);
        let begun = Instant::now();
        assert_eq!(patient.read(&mut text).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(begun.elapsed() >= end);
        assert_eq!(SAID.load(Ordering::Relaxed), 1);
        assert!(patient.read(&mut text).is_err());
        assert_eq!(SAID.load(Ordering::Relaxed), 1);
        theirs.write_all(b"late").unwrap();
        assert_eq!(patient.read(&mut text).unwrap(), 4);
    }
}
