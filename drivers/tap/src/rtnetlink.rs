//! One rtnetlink request (RFC 3549) and what the kernel says to it.
//!
//! Called by `address.rs` and `discipline.rs`, in a thread that stands in the right network namespace.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLMSG_ERROR: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE | NLM_F_CREATE`: what is there already is no error.
const FLAGS: u16 = 0x1 | 0x4 | 0x100 | 0x400;
/// Of a message: length, type, flags, number, port.
pub(crate) const HEADER_BYTES: usize = 16;

/// A message of this type with the family's header behind its own; attributes follow.
pub(crate) fn message(kind: u16, header: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
    message.extend(header);
    message
}

/// Appends an attribute whose value is a multiple of four bytes long.
pub(crate) fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend((4 + value.len() as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}

/// Sends a message that is complete, and waits for what the kernel says.
pub(crate) fn ask(mut message: Vec<u8>) -> io::Result<()> {
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    // Netlink's protocol 0 is rtnetlink.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (count, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    result_of(&answer[..count])
}

/// What the kernel's acknowledgement says.
fn result_of(answer: &[u8]) -> io::Result<()> {
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "rtnetlink's answer cannot be read");
    let kind = answer.get(4..6).and_then(|it| it.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|it| it.try_into().ok());
    match (kind, code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_answer_is_an_error_or_none() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend(code.to_ne_bytes());
            result_of(&bytes).map_err(|error| error.raw_os_error())
        };
        assert_eq!(answer(NLMSG_ERROR, 0), Ok(()));
        assert_eq!(answer(NLMSG_ERROR, -libc::EPERM), Err(Some(libc::EPERM)));
        assert_eq!(answer(NLMSG_ERROR + 1, 0), Err(None));
        assert!(result_of(&[]).is_err());
    }
}
