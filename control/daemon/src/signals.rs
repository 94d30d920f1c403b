//! What signals ask of the daemon: the first one to end, the second to end at once.
//!
//! Used by `daemon.rs`, from before there is anything to be taken back until nothing is left of it. A thread of its own hears them, because
//! whoever else could may wait for what takes long at the start or at the end.

use std::io;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Nobody is killed by SIGTERM, SIGINT or SIGHUP from here on. What comes back is told of the first of the former two; at the
/// second `at_once` is called.
pub(crate) fn listen(at_once: impl FnOnce() + Send + 'static) -> io::Result<oneshot::Receiver<()>> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    drop(inside);
    let (told, first) = oneshot::channel();
    let hear = async move {
        let mut told = Some(told);
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                // The terminal that started us may go; configuration is changed through the socket.
                _ = hang_up.recv() => {
                    tracing::info!("SIGHUP does nothing: use `firelane apply FILE`");
                    continue;
                }
            }
            match told.take() {
                // Who does not listen any more is ending.
                Some(told) => drop(told.send(())),
                None => return at_once(),
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(hear))?;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    #[test]
    fn the_first_signal_asks_for_the_end_and_the_second_does_not_wait_for_it() {
        let (ends, ended) = channel();
        let mut first = listen(move || ends.send(()).unwrap()).unwrap();
        let send = |signal| kill_process(getpid(), signal).unwrap();
        send(Signal::HUP);
        assert!(first.try_recv().is_err());
        send(Signal::TERM);
        first.blocking_recv().unwrap();
        assert_eq!(ended.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        send(Signal::INT);
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
