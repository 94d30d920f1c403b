//! USDT probes: places in a running lane that bpftrace, perf and SystemTap can look at.
//!
//! Providers and names are Solaris' (`tcp` and `ip`; `state__change` is DTrace's `state-change`). Nobody looking costs one
//! word that is read and a branch that is not taken, and the arguments are not computed. `docs/probes.md` lists them.
//! The macro's own unsafe code is the `nop` that a tracer replaces, and its count of who looks.

use firelane_classify::Tuple;
use firelane_frame::Frame;
use firelane_tcp::{SegmentIn, SegmentOut, State};
use firelane_units::{DropReason, LinkId, SeqNum};
use firelane_wire::{TcpFlags, TcpView};
use probe::probe_lazy;

/// A half of an address: of the local end (0) or the remote (1), the high one (0) or the low.
fn half(tuple: impl Fn() -> Option<Tuple>, end: usize, half: usize) -> u64 {
    tuple().map_or(0, |tuple| tuple.halves()[end][half])
}

/// The port of the local end (0) or the remote (1).
fn port(tuple: impl Fn() -> Option<Tuple>, end: usize) -> u16 {
    tuple().map_or(0, |tuple| [tuple.local_port(), tuple.remote_port()][end].0)
}

/// A connection sends a segment.
#[inline]
pub(crate) fn tcp_send(tuple: impl Fn() -> Option<Tuple>, out: &SegmentOut) {
    probe_lazy!(
        tcp,
        send,
        half(&tuple, 0, 0),
        half(&tuple, 0, 1),
        port(&tuple, 0),
        half(&tuple, 1, 0),
        half(&tuple, 1, 1),
        port(&tuple, 1),
        out.seq.0,
        out.ack.map_or(0, |ack| ack.0),
        out.payload_len(),
        out.flags.bits()
    );
}

/// A connection gets a segment.
#[inline]
pub(crate) fn tcp_receive(tuple: impl Fn() -> Option<Tuple>, seg: &TcpView<'_>) {
    tcp_receive_parts(tuple, || (seg.seq(), seg.ack(), seg.payload().len(), seg.flags()));
}

/// A connection gets a segment that had no packet.
#[inline]
pub(crate) fn tcp_receive_direct(tuple: impl Fn() -> Option<Tuple>, seg: &SegmentIn<'_>) {
    tcp_receive_parts(tuple, || (seg.seq, seg.ack, seg.payload.len(), seg.flags));
}

#[inline]
fn tcp_receive_parts(
    tuple: impl Fn() -> Option<Tuple>,
    parts: impl Fn() -> (SeqNum, Option<SeqNum>, usize, TcpFlags),
) {
    probe_lazy!(
        tcp,
        receive,
        half(&tuple, 0, 0),
        half(&tuple, 0, 1),
        port(&tuple, 0),
        half(&tuple, 1, 0),
        half(&tuple, 1, 1),
        port(&tuple, 1),
        parts().0.0,
        parts().1.map_or(0, |ack| ack.0),
        parts().2,
        parts().3.bits()
    );
}

/// A connection goes from one state of RFC 9293 to another.
#[inline]
pub(crate) fn tcp_state_change(tuple: impl Fn() -> Option<Tuple>, from: State, to: State) {
    probe_lazy!(
        tcp,
        state__change,
        half(&tuple, 0, 0),
        half(&tuple, 0, 1),
        port(&tuple, 0),
        half(&tuple, 1, 0),
        half(&tuple, 1, 1),
        port(&tuple, 1),
        from as u8,
        to as u8
    );
}

/// The peer has opened a connection.
#[inline]
pub(crate) fn tcp_accept(tuple: impl Fn() -> Option<Tuple>) {
    probe_lazy!(
        tcp,
        accept,
        half(&tuple, 0, 0),
        half(&tuple, 0, 1),
        port(&tuple, 0),
        half(&tuple, 1, 0),
        half(&tuple, 1, 1),
        port(&tuple, 1)
    );
}

/// We have opened a connection.
#[inline]
pub(crate) fn tcp_connect(tuple: impl Fn() -> Option<Tuple>) {
    probe_lazy!(
        tcp,
        connect,
        half(&tuple, 0, 0),
        half(&tuple, 0, 1),
        port(&tuple, 0),
        half(&tuple, 1, 0),
        half(&tuple, 1, 1),
        port(&tuple, 1)
    );
}

/// A netstack sends a packet: the frame, its length, the VNIC.
#[inline]
pub(crate) fn ip_send(frame: &Frame, link: LinkId) {
    probe_lazy!(ip, send, frame.as_slice().as_ptr(), frame.len(), link.0);
}

/// A netstack gets a packet.
#[inline]
pub(crate) fn ip_receive(frame: &Frame, link: LinkId) {
    probe_lazy!(ip, receive, frame.as_slice().as_ptr(), frame.len(), link.0);
}

/// A frame is dropped: the reason's word and its length, the frame and its length, the port that it came by.
#[inline]
pub(crate) fn ip_drop(frame: &Frame, reason: DropReason) {
    probe_lazy!(
        ip,
        drop,
        reason.word().as_ptr(),
        reason.word().len(),
        frame.as_slice().as_ptr(),
        frame.len(),
        frame.meta().ingress.0
    );
}
