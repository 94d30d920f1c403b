//! How a lane's worker sleeps and is woken: one epoll set per lane, with a bell (eventfd) in it.
//!
//! Rung by application threads, other lanes and wires. A ring costs a system call only when the worker
//! sleeps. Rules:
//! - R1. The worker clears the bell before it looks for work, never after, so a ring during the work is kept.
//! - R2. It sleeps only after the state word went from `AWAKE` to `ASLEEP`; a ring in between makes the word
//!   `RUNG` and the step fail.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake as TaskWake;
use std::time::Duration;

use firelane_lane::{Calls, Wake};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::sys;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;

/// The epoll keys: of the bell itself, of devices, of programs' bells, and of the timer that ends a pause.
const BELL_KEY: u64 = 0;
const DEVICE_KEY: u64 = 1;
const PROGRAM_KEY: u64 = 2;
const TIMER_KEY: u64 = 3;

/// From here on the keys of devices that have numbers.
const NUMBERED_KEY: u64 = 4;

/// What the worker has heard since it last asked ([`Bell::take_heard`]).
const NOT_LISTENED: u32 = 0;
const QUIET: u32 = 1;
const CALLED: u32 = 2;
/// Devices have called whose numbers are not known.
const UNKNOWN: u32 = 3;

/// How many calls are taken at once.
const EVENTS: usize = 16;
const NO_EVENT: epoll::Event =
    epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Up to here a sleep is not to end a millisecond late: a limit lets frames pass every 100 us.
const EXACT_MAX_NANOS: i64 = 20_000_000;

/// Whether a sleep must end in time: epoll_wait(2) counts in whole milliseconds and rounds up.
fn is_short(limit: &Timespec) -> bool {
    limit.tv_sec == 0 && (1..EXACT_MAX_NANOS).contains(&limit.tv_nsec)
}

/// How a device may wake the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hearing {
    /// Not at all.
    pub(crate) is_mute: bool,
    /// Each time that the worker sleeps while there are frames.
    pub(crate) is_reminded: bool,
}

/// One lane's bell and what its worker waits for.
#[derive(Debug)]
pub(crate) struct Bell {
    state: AtomicU32,
    /// The worker's own.
    heard: AtomicU32,
    /// The numbers of those that have called.
    called: Mutex<Vec<u32>>,
    /// How often the worker has slept, and been woken by somebody or by the time; it alone counts.
    sleeps: AtomicU64,
    eventfd: OwnedFd,
    set: OwnedFd,
    /// The same without devices, and with the timer.
    quiet: OwnedFd,
    /// Ends a pause. Who makes it longer need not wake the worker.
    timer: OwnedFd,
    /// Whether the worker sleeps in a pause.
    is_deaf: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let [set, quiet] =
            [epoll::create(epoll::CreateFlags::CLOEXEC)?, epoll::create(epoll::CreateFlags::CLOEXEC)?];
        let key = epoll::EventData::new_u64(BELL_KEY);
        for set in [&set, &quiet] {
            epoll::add(set, &eventfd, key, epoll::EventFlags::IN)?;
        }
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        add(&quiet, timer.as_fd(), TIMER_KEY)?;
        let (state, heard) = (AtomicU32::new(AWAKE), AtomicU32::new(NOT_LISTENED));
        let (sleeps, is_deaf) = (AtomicU64::new(0), AtomicBool::new(false));
        let called = Mutex::new(Vec::with_capacity(EVENTS));
        Ok(Arc::new(Self { state, heard, called, sleeps, eventfd, set, quiet, timer, is_deaf }))
    }

    /// How often the worker has slept.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Adds a device. Edge-triggered: it wakes for arrivals after the lane has emptied it, and while the
    /// lane leaves frames in the device on purpose it does not.
    pub(crate) fn watch(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        add(&self.set, device, DEVICE_KEY)
    }

    /// Adds an eventfd by which a program rings. By edges, so that nobody has to read it.
    pub(crate) fn watch_program(&self, bell: BorrowedFd<'_>) -> io::Result<()> {
        add(&self.quiet, bell, PROGRAM_KEY)?;
        add(&self.set, bell, PROGRAM_KEY)
    }

    /// Says how a device that is watched may wake the worker, and under which number. Who is heard again calls at once if it has
    /// frames.
    pub(crate) fn set_hearing(&self, device: BorrowedFd<'_>, hearing: Hearing, number: Option<u32>) {
        let flags = match hearing {
            // By edges all the same: errors are told to the mute, too, and by levels there would be no end of them.
            Hearing { is_mute: true, .. } => epoll::EventFlags::ET,
            Hearing { is_reminded: true, .. } => epoll::EventFlags::IN,
            Hearing { .. } => epoll::EventFlags::IN | epoll::EventFlags::ET,
        };
        // A device that is not in the set any more wakes nobody.
        let key = number.map_or(DEVICE_KEY, |number| NUMBERED_KEY + u64::from(number));
        let _ = epoll::modify(&self.set, device, epoll::EventData::new_u64(key), flags);
    }

    /// Takes a device, or a program's bell, out again.
    pub(crate) fn forget(&self, device: BorrowedFd<'_>) {
        // One that is not in the set is out of it.
        let _ = epoll::delete(&self.set, device);
        let _ = epoll::delete(&self.quiet, device);
    }

    /// The worker is about to look for work (R1).
    pub(crate) fn clear(&self) {
        // Whoever rings behind this look is found before it sleeps.
        if self.is_rung() {
            self.state.store(AWAKE, Ordering::SeqCst);
        }
    }

    /// The worker sleeps until the bell rings, a device has frames unless it is deaf for these, or the time is over.
    pub(crate) fn sleep(&self, limit: Option<Duration>, is_deaf: bool) {
        if self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        match limit.filter(|_| is_deaf) {
            Some(limit) => {
                self.put_off(limit);
                self.is_deaf.store(true, Ordering::Relaxed);
                self.wait(None, true);
                self.is_deaf.store(false, Ordering::Relaxed);
            }
            None => {
                self.wait(limit.map(timespec).as_ref(), is_deaf);
            }
        }
        self.sleeps.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the worker sleeps in a pause.
    pub(crate) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }

    /// Somebody has looked at the devices in the worker's stead: it may pause for so long from now on. If it has just begun
    /// another pause, that ends first.
    pub(crate) fn put_off(&self, limit: Duration) {
        // Zero would disarm it.
        let limit = timespec(limit.max(Duration::from_nanos(1)));
        let once = Itimerspec { it_interval: NOW, it_value: limit };
        // A timer of our own takes any time that is not negative.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    /// Whether it was rung since [`Bell::clear`].
    pub(crate) fn is_rung(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AWAKE
    }

    /// Listens for devices that must call each time, though there is no time to sleep.
    pub(crate) fn listen(&self) {
        if self.wait(Some(&NOW), false) {
            self.sleeps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a device has frames, without sleeping. It is not told again of those (see [`Bell::watch`]).
    pub(crate) fn glance(&self, is_deaf: bool) -> bool {
        self.wait(Some(&NOW), is_deaf)
    }

    /// Which devices have called since it was last asked, whose numbers are put into `numbers`; `None` if nobody has listened.
    pub(crate) fn take_heard<'a>(&self, numbers: &'a mut Vec<u32>) -> Option<Calls<'a>> {
        numbers.clear();
        if self.heard.load(Ordering::Relaxed) == NOT_LISTENED {
            return None;
        }
        let heard = self.heard.swap(NOT_LISTENED, Ordering::Relaxed);
        if heard >= CALLED {
            numbers.append(&mut self.called.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match heard {
            NOT_LISTENED => None,
            QUIET => Some(Calls::Nobody),
            CALLED => Some(Calls::These(numbers)),
            _ => Some(Calls::Somebody),
        }
    }

    /// Whether there was anything within the limit.
    fn wait(&self, limit: Option<&Timespec>, is_deaf: bool) -> bool {
        let set = if is_deaf { &self.quiet } else { &self.set };
        let mut events = [NO_EVENT; EVENTS];
        let Ok(count) = wait_in(set, limit, &mut events) else { return false };
        let events = &events[..count];
        let has = |key| events.iter().any(|event| event.data.u64() == key);
        if has(BELL_KEY) {
            let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        }
        if !is_deaf {
            self.note_calls(events.iter().map(|event| event.data.u64()));
        }
        !events.is_empty()
    }

    /// Notes who has called, by what the set holds.
    fn note_calls(&self, keys: impl ExactSizeIterator<Item = u64>) {
        // Who finds no room for all of them cannot say that one was quiet.
        let mut heard = if keys.len() == EVENTS { UNKNOWN } else { QUIET };
        let mut called = None;
        for key in keys.filter(|&key| key == DEVICE_KEY || key >= NUMBERED_KEY) {
            heard = heard.max(if key == DEVICE_KEY { UNKNOWN } else { CALLED });
            if let Some(number) = key.checked_sub(NUMBERED_KEY) {
                let called =
                    called.get_or_insert_with(|| self.called.lock().unwrap_or_else(PoisonError::into_inner));
                called.push(number as u32);
            }
        }
        self.heard.fetch_max(heard, Ordering::Relaxed);
    }

    /// Wakes the worker, or keeps it from falling asleep.
    pub(crate) fn ring(&self) {
        if self.state.swap(RUNG, Ordering::SeqCst) == ASLEEP {
            // The counter of an eventfd cannot overflow by ones, and nothing else can fail here.
            let _ = rustix::io::write(self.eventfd.as_fd(), &1u64.to_ne_bytes());
        }
    }
}

/// Waits for what a set holds, in time. epoll_pwait2(2) is younger than kernels that are in use, and not everybody may call it;
/// poll(2) on the set itself counts in nanoseconds, too, and then a second call says what the set holds.
fn wait_in(
    set: &OwnedFd,
    limit: Option<&Timespec>,
    events: &mut [epoll::Event],
) -> rustix::io::Result<usize> {
    let Some(short) = limit.filter(|limit| is_short(limit)) else { return epoll::wait(set, events, limit) };
    match sys::epoll_wait(set.as_fd(), events, short) {
        Err(Errno::NOSYS | Errno::PERM) => wait_by_poll(set, short, events),
        ended => ended,
    }
}

#[cold]
fn wait_by_poll(set: &OwnedFd, short: &Timespec, events: &mut [epoll::Event]) -> rustix::io::Result<usize> {
    let _ = poll(&mut [PollFd::new(set, PollFlags::IN)], Some(short));
    epoll::wait(set, events, Some(&NOW))
}

fn timespec(limit: Duration) -> Timespec {
    Timespec { tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: limit.subsec_nanos().into() }
}

/// By edges.
fn add(set: &OwnedFd, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    Ok(epoll::add(set, fd, epoll::EventData::new_u64(key), flags)?)
}

/// The squeue's way to ring.
#[derive(Clone, Debug)]
pub(crate) struct Ringer(pub(crate) Arc<Bell>);

impl Wake for Ringer {
    fn wake(&self) {
        self.0.ring();
    }
}

impl TaskWake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    type Way = fn(&OwnedFd, &Timespec, &mut [epoll::Event]) -> rustix::io::Result<usize>;

    fn wait_in_time(
        set: &OwnedFd,
        limit: &Timespec,
        events: &mut [epoll::Event],
    ) -> rustix::io::Result<usize> {
        wait_in(set, Some(limit), events)
    }

    /// Whether a device has called, if the worker has listened.
    fn heard(bell: &Bell) -> Option<bool> {
        bell.take_heard(&mut Vec::new()).map(|calls| calls != Calls::Nobody)
    }

    #[test]
    fn a_ring_before_sleep_is_not_lost() {
        let bell = Bell::new().unwrap();
        bell.clear();
        bell.ring();
        let before = Instant::now();
        bell.sleep(Some(Duration::from_secs(10)), false);
        assert!(before.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_ring_ends_sleep_and_the_next_sleep_lasts() {
        let bell = Bell::new().unwrap();
        std::thread::scope(|scope| {
            bell.clear();
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                bell.ring();
            });
            bell.sleep(None, false);
        });
        bell.clear();
        let before = Instant::now();
        bell.sleep(Some(Duration::from_millis(20)), false);
        assert!(before.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_short_sleep_ends_in_time_and_hears_who_calls() {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let bell = Bell::new().unwrap();
        let took = |limit| {
            bell.clear();
            let before = Instant::now();
            bell.sleep(Some(limit), false);
            before.elapsed()
        };
        // A busy machine may be late now and then, but not thirty times.
        let limit = Duration::from_micros(100);
        let soonest = (0..30).map(|_| took(limit)).min().unwrap();
        assert!(soonest >= limit && soonest < Duration::from_micros(900), "{soonest:?}");
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        bell.watch(reader.as_fd()).unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let _ = heard(&bell);
        took(Duration::from_millis(19));
        assert_eq!(heard(&bell), Some(true));
    }

    #[test]
    fn both_ways_to_wait_in_time_tell_the_same() {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        for way in [wait_in_time as Way, wait_by_poll] {
            let bell = Bell::new().unwrap();
            let mut events = [NO_EVENT; 16];
            let limit = timespec(Duration::from_micros(100));
            let mut took = || {
                let before = Instant::now();
                assert_eq!(way(&bell.set, &limit, &mut events), Ok(0));
                before.elapsed()
            };
            let soonest = (0..30).map(|_| took()).min().unwrap();
            assert!((100..900).contains(&soonest.as_micros()), "{soonest:?}");
            let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
            bell.watch(reader.as_fd()).unwrap();
            rustix::io::write(&writer, b"x").unwrap();
            let long = timespec(Duration::from_millis(19));
            assert_eq!(way(&bell.set, &long, &mut events), Ok(1));
            assert_eq!(events[0].data.u64(), DEVICE_KEY);
        }
    }

    #[test]
    fn who_listens_hears_devices_and_remembers() {
        let bell = Bell::new().unwrap();
        let [(device, peer), (program, other)] =
            [(); 2].map(|()| std::os::unix::net::UnixStream::pair().unwrap());
        bell.watch(device.as_fd()).unwrap();
        bell.watch_program(program.as_fd()).unwrap();
        assert_eq!(heard(&bell), None);
        rustix::io::write(&other, b"x").unwrap();
        assert!(bell.glance(false));
        assert_eq!((heard(&bell), heard(&bell)), (Some(false), None), "a program is no device");
        rustix::io::write(&peer, b"x").unwrap();
        assert!(bell.glance(false) && !bell.glance(false));
        assert_eq!(heard(&bell), Some(true), "though the second glance found nothing");
    }

    #[test]
    fn who_has_a_number_calls_by_it() {
        let bell = Bell::new().unwrap();
        let pairs = [(); 3].map(|()| std::os::unix::net::UnixStream::pair().unwrap());
        let mut numbers = vec![9];
        for (nth, (device, _)) in (0..).zip(&pairs) {
            bell.watch(device.as_fd()).unwrap();
            bell.set_hearing(device.as_fd(), Hearing { is_mute: false, is_reminded: false }, Some(nth));
        }
        assert!(!bell.glance(false));
        assert_eq!(bell.take_heard(&mut numbers), Some(Calls::Nobody));
        for nth in [2, 0] {
            rustix::io::write(&pairs[nth].1, b"x").unwrap();
            assert!(bell.glance(false));
        }
        assert_eq!(bell.take_heard(&mut numbers), Some(Calls::These(&[2, 0])));
        let (device, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        bell.watch(device.as_fd()).unwrap();
        rustix::io::write(&pairs[1].1, b"x").unwrap();
        rustix::io::write(&peer, b"x").unwrap();
        assert!(bell.glance(false));
        assert_eq!(bell.take_heard(&mut numbers), Some(Calls::Somebody), "one has no number");
        assert_eq!(bell.take_heard(&mut numbers), None);
    }

    #[test]
    fn a_device_that_is_gone_tells_so_once() {
        for hearing in [true, false].map(|is_mute| Hearing { is_mute, is_reminded: false }) {
            let bell = Bell::new().unwrap();
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            bell.watch(writer.as_fd()).unwrap();
            bell.set_hearing(writer.as_fd(), hearing, None);
            // Whatever is asked for, an error is told, as a TAP's whose interface was deleted.
            drop(reader);
            bell.glance(false);
            assert!(!bell.glance(false));
        }
    }

    #[test]
    fn a_mute_device_wakes_nobody_and_calls_when_it_may_again() {
        let bell = Bell::new().unwrap();
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        bell.watch(reader.as_fd()).unwrap();
        bell.set_hearing(reader.as_fd(), Hearing { is_mute: true, is_reminded: false }, None);
        rustix::io::write(&writer, b"x").unwrap();
        assert!(!bell.glance(false));
        bell.set_hearing(reader.as_fd(), Hearing { is_mute: false, is_reminded: false }, None);
        assert!(bell.glance(false) && !bell.glance(false));
    }

    #[test]
    fn a_device_that_reminds_ends_every_sleep_and_the_deaf_hear_programs_alone() {
        let bell = Bell::new().unwrap();
        let [(device, peer), (program, other)] =
            [(); 2].map(|()| std::os::unix::net::UnixStream::pair().unwrap());
        bell.watch(device.as_fd()).unwrap();
        bell.watch_program(program.as_fd()).unwrap();
        bell.set_hearing(device.as_fd(), Hearing { is_mute: false, is_reminded: true }, None);
        rustix::io::write(&peer, b"x").unwrap();
        let took = |is_deaf| {
            bell.clear();
            let before = Instant::now();
            bell.sleep(Some(Duration::from_millis(20)), is_deaf);
            (before.elapsed() >= Duration::from_millis(20), heard(&bell))
        };
        assert_eq!([took(false), took(false)], [(false, Some(true)); 2]);
        assert_eq!(took(true), (true, None), "of devices nothing is known");
        rustix::io::write(&other, b"x").unwrap();
        assert_eq!(took(true), (false, None));
        assert_eq!(bell.sleeps(), 4);
    }

    #[test]
    fn a_device_ends_sleep_once_per_arrival() {
        let bell = Bell::new().unwrap();
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        bell.watch(reader.as_fd()).unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        bell.clear();
        bell.sleep(None, false);
        bell.clear();
        let before = Instant::now();
        bell.sleep(Some(Duration::from_millis(20)), false);
        assert!(before.elapsed() >= Duration::from_millis(20), "what is left in the device is no arrival");
    }
}
