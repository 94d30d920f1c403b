//! Waiting for several descriptors: `poll`, `select`, `epoll` and their kin.

use core::ffi::{c_int, c_long};
use core::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rustix::io::Errno;

use crate::real::hooks;
use crate::sys::{Call, Limit, Manner, SIGSET_BYTES};
use crate::{buffers, epoll, poll, select};

/// A call without a set of signals.
const PLAIN: (Call, *const sigset_t) = (Call::Plain, core::ptr::null());

hooks! {
    @point fn poll(fds: *mut pollfd, n: nfds_t, milliseconds: c_int) -> c_int =
        poll_for(fds, n, Ok(milliseconds_of(milliseconds)), PLAIN);

    @point fn __poll_chk(fds: *mut pollfd, n: nfds_t, milliseconds: c_int, room: size_t) -> c_int =
        checked(n, room).and_then(|()| poll_for(fds, n, Ok(milliseconds_of(milliseconds)), PLAIN));

    @point fn ppoll(fds: *mut pollfd, n: nfds_t, limit: *const timespec, mask: *const sigset_t) -> c_int =
        poll_for(fds, n, time_of(limit), (Call::Masked, mask));

    @point fn __ppoll_chk(
        fds: *mut pollfd, n: nfds_t, limit: *const timespec, mask: *const sigset_t, room: size_t,
    ) -> c_int = checked(n, room).and_then(|()| poll_for(fds, n, time_of(limit), (Call::Masked, mask)));

    /// Linux leaves in `limit` what was not waited, also where a signal has ended the call: whoever calls again waits for the rest.
    @point fn select(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, limit: *mut timeval,
    ) -> c_int = {
        // SAFETY: the caller's promise about the sets.
        let sets = unsafe { sets(n, [read, write, except]) };
        sets.map(|sets| {
            // SAFETY: the caller's promise about the time.
            let wanted = unsafe { limit.as_ref() }.map(timeval_of).transpose()?;
            let (answer, left) = select::wait(sets?, wanted, None);
            // SAFETY: the caller's promise about the time.
            if let (Some(limit), Some(left)) = (unsafe { limit.as_mut() }, left) {
                limit.tv_sec = left.as_secs().min(i64::MAX as u64) as i64;
                limit.tv_usec = i64::from(left.subsec_micros());
            }
            answer
        })
    };

    @point fn pselect(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        limit: *const timespec, mask: *const sigset_t,
    ) -> c_int = {
        // SAFETY: the caller's promise about the sets.
        let sets = unsafe { sets(n, [read, write, except]) };
        // SAFETY: the caller's promise about the signals.
        sets.map(|sets| select::wait(sets?, time_of(limit)?, unsafe { mask.as_ref() }).0)
    };

    // SAFETY: no memory is involved.
    fn epoll_create(size: c_int) -> c_int = Some(Ok(epoll::created(unsafe { next::epoll_create(size) })));

    // SAFETY: no memory is involved.
    fn epoll_create1(flags: c_int) -> c_int = Some(Ok(epoll::created(unsafe { next::epoll_create1(flags) })));

    fn epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int =
        // SAFETY: the caller's promise about the event.
        epoll::change(epoll, what, fd, || unsafe { event_at(event) }).map(|result| result.map(|()| 0));

    @point fn epoll_wait(epoll: c_int, events: *mut epoll_event, n: c_int, milliseconds: c_int) -> c_int =
        epoll_for(epoll, events, n, Ok(milliseconds_of(milliseconds)), PLAIN);

    @point fn epoll_pwait(
        epoll: c_int, events: *mut epoll_event, n: c_int, milliseconds: c_int, mask: *const sigset_t,
    ) -> c_int = epoll_for(epoll, events, n, Ok(milliseconds_of(milliseconds)), (Call::Masked, mask));

    /// In libc since 2.35.
    @point fn epoll_pwait2(
        epoll: c_int, events: *mut epoll_event, n: c_int, limit: *const timespec, mask: *const sigset_t,
    ) -> c_int = epoll_for(epoll, events, n, time_of(limit), (Call::Exact, mask));
}

/// What pselect6(2) has in the place of signals: where they are, and how long.
#[repr(C)]
pub(super) struct Masked {
    mask: *const u8,
    bytes: size_t,
}

/// The system call behind `pselect`, which as `select` leaves in `limit` what was not waited.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn pselect6(
    n: c_int,
    all: [*mut fd_set; 3],
    limit: *mut timespec,
    masked: *const Masked,
) -> Option<c_long> {
    // SAFETY: the caller's promise about the sets.
    let sets = unsafe { sets(n, all) }?;
    let wait = || -> Result<c_int, Errno> {
        let wanted = time_of(limit)?;
        // SAFETY: the caller's promise about the signals.
        let mask = unsafe { mask_of(masked) }?;
        let (answer, left) = select::wait(sets?, wanted, mask.as_ref());
        // SAFETY: the caller's promise about the time.
        if let (Some(limit), Some(left)) = (unsafe { limit.as_mut() }, left) {
            limit.tv_sec = left.as_secs().min(i64::MAX as u64) as i64;
            limit.tv_nsec = left.subsec_nanos().into();
        }
        answer
    };
    Some(crate::answer::answer(wait()).into())
}

/// The kernel's signals as libc's, which have room for more.
///
/// # Safety
/// `masked` is null, or names null or as many bytes as it says.
unsafe fn mask_of(masked: *const Masked) -> Result<Option<sigset_t>, Errno> {
    // SAFETY: the caller's promise.
    let Some(masked) = (unsafe { masked.as_ref() }).filter(|masked| !masked.mask.is_null()) else {
        return Ok(None);
    };
    if masked.bytes != SIGSET_BYTES {
        return Err(Errno::INVAL);
    }
    // SAFETY: zeros are an empty set; the caller's promise about the bytes, of which the set has more.
    unsafe {
        let mut mask: sigset_t = core::mem::zeroed();
        core::ptr::copy_nonoverlapping(masked.mask, (&raw mut mask).cast(), SIGSET_BYTES);
        Ok(Some(mask))
    }
}

/// Libc's own fortified function ends the program when the array is smaller than said: it gets the call.
fn checked(n: nfds_t, room: size_t) -> Option<()> {
    (n as usize <= room / size_of::<pollfd>()).then_some(())
}

/// Every negative number is for ever.
fn milliseconds_of(milliseconds: c_int) -> Limit {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

fn time_of(limit: *const timespec) -> Result<Limit, Errno> {
    if !limit.is_null() {
        buffers::check(limit.cast(), size_of::<timespec>())?;
    }
    // SAFETY: the caller's promise about the time.
    let Some(limit) = (unsafe { limit.as_ref() }) else { return Ok(None) };
    let seconds = u64::try_from(limit.tv_sec).map_err(|_| Errno::INVAL)?;
    let nanos =
        u32::try_from(limit.tv_nsec).ok().filter(|&nanos| nanos < 1_000_000_000).ok_or(Errno::INVAL)?;
    Ok(Some(Duration::new(seconds, nanos)))
}

/// More than a second of microseconds is allowed, as Linux does.
fn timeval_of(limit: &timeval) -> Result<Duration, Errno> {
    let seconds = u64::try_from(limit.tv_sec).map_err(|_| Errno::INVAL)?;
    let micros = u64::try_from(limit.tv_usec).map_err(|_| Errno::INVAL)?;
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
}

fn poll_for(
    fds: *mut pollfd,
    n: nfds_t,
    limit: Result<Limit, Errno>,
    (call, mask): (Call, *const sigset_t),
) -> Option<Result<c_int, Errno>> {
    let bytes = (n as usize).checked_mul(size_of::<pollfd>())?;
    buffers::check_mut(fds.cast(), bytes).ok()?;
    if n == 0 {
        return None;
    }
    // SAFETY: the caller's promise about the array.
    let fds = unsafe { core::slice::from_raw_parts_mut(fds, n as usize) };
    if !poll::concerns(fds) {
        return None;
    }
    // SAFETY: the caller's promise about the signals.
    Some(limit.and_then(|limit| poll::wait(fds, limit, Manner { call, mask: unsafe { mask.as_ref() } })))
}

/// The sets as words of 64 descriptors, if one of ours is among them.
///
/// # Safety
/// Each set is null or has `n` bits that are nobody else's for `'a`.
unsafe fn sets<'a>(n: c_int, sets: [*mut fd_set; 3]) -> Option<Result<select::Sets<'a>, Errno>> {
    let words = usize::try_from(n).ok()?.div_ceil(c_long::BITS as usize);
    if sets
        .iter()
        .any(|set| !set.is_null() && buffers::check_mut(set.cast(), words * size_of::<u64>()).is_err())
    {
        // The kernel says so.
        return None;
    }
    let slices = sets.map(|set| {
        // SAFETY: the caller's promise; the kernel, too, reads whole words.
        (!set.is_null()).then(|| unsafe { core::slice::from_raw_parts_mut(set.cast::<u64>(), words) })
    });
    select::Sets::concerning(n, slices).map(Ok)
}

/// # Safety
/// The event is readable, or among what [`buffers::check`] refuses.
unsafe fn event_at(event: *const epoll_event) -> Result<epoll_event, Errno> {
    buffers::check(event.cast(), size_of::<epoll_event>())?;
    // SAFETY: the caller's promise.
    Ok(unsafe { event.read_unaligned() })
}

fn epoll_for(
    epoll: c_int,
    events: *mut epoll_event,
    n: c_int,
    limit: Result<Limit, Errno>,
    (call, mask): (Call, *const sigset_t),
) -> Option<Result<c_int, Errno>> {
    let set = epoll::at(epoll)?;
    let count = usize::try_from(n).ok().filter(|&n| n > 0 && n <= epoll::EVENTS_MAX);
    Some(count.ok_or(Errno::INVAL).and_then(|n| {
        buffers::check_mut(events.cast(), n * size_of::<epoll_event>())?;
        // SAFETY: the caller's promise about the array.
        let events = unsafe { core::slice::from_raw_parts_mut(events, n) };
        // SAFETY: the caller's promise about the signals.
        set.wait(events, limit?, Manner { call, mask: unsafe { mask.as_ref() } })
    }))
}
