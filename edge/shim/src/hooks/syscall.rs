//! Libc's `syscall`: libuv reaches `accept4` and `epoll_*` through it.
//!
//! The numbers of calls that have a hook go there; the rest goes on untouched. `io_uring_setup` answers ENOSYS to
//! a program on a netstack: what it would do to a socket of ours would reach the descriptor behind it, not the
//! socket, and programs that ask for a ring fall back by themselves.

use core::ffi::{c_int, c_long, c_uint};

use rustix::io::Errno;

use super::{
    confining, descriptors, handlers, locking, messages, names, readiness, sockets, spawning, transfer,
};
use crate::real::hooks;
use crate::session;

hooks! {
    /// Variadic in C: six arguments stand in registers and on the stack as these do.
    fn syscall(
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
    // SAFETY: the caller's promise for the call of this number.
    ) -> c_long = unsafe { route(number, [a, b, c, d, e, f]) }.map(Ok);
}

/// Calls the hook for `number`, if there is one. It has set `errno` itself.
///
/// # Safety
/// As the system call's.
#[rustfmt::skip]
unsafe fn route(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    if !session::is_wanted() {
        return None;
    }
    let fd = a as c_int;
    // SAFETY: the caller's promise is that of each hook.
    let answer = unsafe {
        match number {
            libc::SYS_read => transfer::read(fd, b as _, c) as c_long,
            libc::SYS_write => transfer::write(fd, b as _, c) as c_long,
            libc::SYS_readv => transfer::readv(fd, b as _, c as c_int) as c_long,
            libc::SYS_writev => transfer::writev(fd, b as _, c as c_int) as c_long,
            libc::SYS_preadv2 => transfer::preadv2(fd, b as _, c as c_int, d as _, f as c_int) as c_long,
            libc::SYS_pwritev2 => transfer::pwritev2(fd, b as _, c as c_int, d as _, f as c_int) as c_long,
            libc::SYS_sendto => transfer::sendto(fd, b as _, c, d as c_int, e as _, f as _) as c_long,
            libc::SYS_recvfrom => transfer::recvfrom(fd, b as _, c, d as c_int, e as _, f as _) as c_long,
            libc::SYS_sendfile => transfer::sendfile(fd, b as c_int, c as _, d) as c_long,
            libc::SYS_splice => transfer::splice(fd, b as _, c as c_int, d as _, e, f as u32) as c_long,
            libc::SYS_sendmsg => messages::sendmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_recvmsg => messages::recvmsg(fd, b as _, c as c_int) as c_long,
            libc::SYS_sendmmsg => messages::sendmmsg(fd, b as _, c as c_uint, d as c_int).into(),
            libc::SYS_recvmmsg => messages::recvmmsg(fd, b as _, c as c_uint, d as c_int, e as _).into(),
            libc::SYS_socket => sockets::socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_bind => sockets::bind(fd, b as _, c as _).into(),
            libc::SYS_listen => sockets::listen(fd, b as c_int).into(),
            libc::SYS_accept => sockets::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => sockets::accept4(fd, b as _, c as _, d as c_int).into(),
            libc::SYS_connect => sockets::connect(fd, b as _, c as _).into(),
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int).into(),
            libc::SYS_getsockopt => sockets::getsockopt(fd, b as c_int, c as c_int, d as _, e as _).into(),
            libc::SYS_setsockopt => sockets::setsockopt(fd, b as c_int, c as c_int, d as _, e as _).into(),
            libc::SYS_getsockname => names::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => names::getpeername(fd, b as _, c as _).into(),
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_ioctl => descriptors::ioctl(fd, b as _, c as _).into(),
            libc::SYS_ppoll => readiness::ppoll(a as _, b as _, c as _, d as _).into(),
            libc::SYS_pselect6 => return readiness::pselect6(fd, [b, c, d].map(|set| set as _), e as _, f as _),
            libc::SYS_epoll_create1 => readiness::epoll_create1(fd).into(),
            libc::SYS_epoll_ctl => readiness::epoll_ctl(fd, b as c_int, c as c_int, d as _).into(),
            libc::SYS_epoll_pwait => readiness::epoll_pwait(fd, b as _, c as c_int, d as c_int, e as _).into(),
            libc::SYS_epoll_pwait2 => readiness::epoll_pwait2(fd, b as _, c as c_int, d as _, e as _).into(),
            libc::SYS_rt_sigaction => return handlers::by_number(fd, b, c, d),
            libc::SYS_mlockall => locking::mlockall(fd).into(),
            libc::SYS_io_uring_setup => crate::answer::answer::<c_int>(Err(Errno::NOSYS)).into(),
            other => {
                spawning::note_syscall(other, a);
                if let Some(answer) = confining::by_number(other, [a, b, c, d]) {
                    return Some(crate::answer::answer(answer).into());
                }
                return legacy(other, a, b, c, d, e);
            }
        }
    };
    Some(answer)
}

/// The calls that only older architectures have.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "x86_64")]
unsafe fn legacy(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize) -> Option<c_long> {
    // SAFETY: the caller's promise is that of each hook.
    unsafe {
        Some(match number {
            libc::SYS_dup2 => descriptors::dup2(a as c_int, b as c_int).into(),
            libc::SYS_poll => readiness::poll(a as _, b as _, c as c_int).into(),
            libc::SYS_select => readiness::select(a as c_int, b as _, c as _, d as _, e as _).into(),
            libc::SYS_epoll_wait => readiness::epoll_wait(a as c_int, b as _, c as c_int, d as c_int).into(),
            _ => return None,
        })
    }
}

/// The calls that only older architectures have: none here.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn legacy(_: c_long, _: usize, _: usize, _: usize, _: usize, _: usize) -> Option<c_long> {
    None
}
