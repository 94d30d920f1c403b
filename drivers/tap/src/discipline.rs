//! Takes an interface's queueing discipline away (`linux/rtnetlink.h`, `tc-noqueue`).
//!
//! Called by `open.rs` before a TAP is set up. The kernel would give a TAP of several queues a discipline of its own for each of the 256
//! that it may have, which takes 6 MB and 3 ms; and no frame ever waits in one, as a TAP takes or drops what it is given.

use std::io;

use crate::rtnetlink::{self, attribute};

const RTM_NEWQDISC: u16 = 36;
const TC_H_ROOT: u32 = u32::MAX;
const TCA_KIND: u16 = 1;

/// Lets what is sent by the interface with this index wait nowhere.
pub(crate) fn take_away(index: u32) -> io::Result<()> {
    // struct tcmsg: family and padding, index, handle, parent, info.
    let words = [0, index, 0, TC_H_ROOT, 0];
    let mut message = rtnetlink::message(RTM_NEWQDISC, &words.map(u32::to_ne_bytes).concat());
    attribute(&mut message, TCA_KIND, b"noqueue\0");
    rtnetlink::ask(message)
}
