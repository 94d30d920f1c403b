//! Who waits for which socket: from the lanes' readiness to wakers.
//!
//! A socket gets a token at its birth and gives it back at its end. A lane that makes an interest true names
//! the token; here it finds the wakers. Blocking calls are wakers too: they unpark their thread.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use firelane_socket::{Ready, SocketToken};

/// The wakers of one socket: one task may wait for each direction, and any number of threads.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    readable: Mutex<Vec<Waker>>,
    writable: Mutex<Vec<Waker>>,
}

impl Seat {
    fn side(&self, ready: Ready) -> &Mutex<Vec<Waker>> {
        if ready.contains(Ready::READABLE) { &self.readable } else { &self.writable }
    }

    /// Leaves a waker for one direction.
    pub(crate) fn leave(&self, ready: Ready, waker: &Waker) {
        let mut wakers = self.side(ready).lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|w| w.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn wake(&self, ready: Ready) {
        for side in [Ready::READABLE, Ready::WRITABLE] {
            if ready.intersects(side | Ready::HANGUP) {
                let wakers =
                    std::mem::take(&mut *self.side(side).lock().unwrap_or_else(PoisonError::into_inner));
                wakers.into_iter().for_each(Waker::wake);
            }
        }
    }
}

/// All seats of an engine.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    seats: RwLock<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    places: Vec<Option<Arc<Seat>>>,
    free: Vec<usize>,
}

impl Sleepers {
    /// A token and its seat.
    pub(crate) fn sit(&self) -> (SocketToken, Arc<Seat>) {
        let seat = Arc::new(Seat::default());
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        let place = seats.free.pop().unwrap_or(seats.places.len());
        if place == seats.places.len() {
            seats.places.push(None);
        }
        seats.places[place] = Some(Arc::clone(&seat));
        (SocketToken(place as u64 + 1), seat)
    }

    /// Gives a token back.
    pub(crate) fn stand_up(&self, token: SocketToken) {
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = place(token) else { return };
        if seats.places.get_mut(place).and_then(Option::take).is_some() {
            seats.free.push(place);
        }
    }

    /// Wakes whoever waits for `ready` of a socket.
    pub(crate) fn wake(&self, token: SocketToken, ready: Ready) {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = place(token).and_then(|p| seats.places.get(p)).and_then(Option::as_ref) {
            seat.wake(ready);
        }
    }
}

fn place(token: SocketToken) -> Option<usize> {
    usize::try_from(token.0.checked_sub(1)?).ok()
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `poll` on this thread until it is ready; `None` if `limit` passes first.
pub(crate) fn block_on<T>(
    limit: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        if let Poll::Ready(value) = poll(&mut context) {
            return Some(value);
        }
        match deadline {
            None => std::thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                std::thread::park_timeout(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_socket_wakes_its_waiting_thread() {
        let sleepers = Sleepers::default();
        let (token, seat) = sleepers.sit();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut polls = 0;
                block_on(Some(Duration::from_secs(10)), |context| {
                    polls += 1;
                    seat.leave(Ready::READABLE, context.waker());
                    if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            while !waiting.is_finished() {
                sleepers.wake(token, Ready::READABLE);
                std::thread::yield_now();
            }
            assert_eq!(waiting.join().unwrap(), Some(()));
        });
    }

    #[test]
    fn a_limit_ends_the_wait() {
        assert_eq!(block_on(Some(Duration::from_millis(5)), |_| Poll::<()>::Pending), None);
    }

    #[test]
    fn tokens_are_used_again_and_stale_ones_wake_nobody() {
        let sleepers = Sleepers::default();
        let (first, _) = sleepers.sit();
        sleepers.stand_up(first);
        sleepers.wake(first, Ready::ALL);
        sleepers.stand_up(first);
        let (second, _) = sleepers.sit();
        assert_eq!(first, second);
        let (third, _) = sleepers.sit();
        assert_ne!(second, third);
    }
}
