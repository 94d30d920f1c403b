//! Maps, the program and its attachment: every one a descriptor, so all of it ends with the process.
//!
//! Called by `open.rs`. A `bpf_link` detaches when its last descriptor is closed, after `kill -9` too, and no other
//! program can take its place meanwhile.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use firelane_units::MacAddr;
use rustix::io::Errno;

use crate::error::Refused;
use crate::program::{self, CLAIM_KEY_BYTES};
use crate::sys::{self, Attributes};

const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const MAP_DELETE_ELEM: u32 = 3;
const PROG_LOAD: u32 = 5;
const LINK_CREATE: u32 = 28;
const LINK_DETACH: u32 = 34;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// `BPF_XDP` as a point of attachment.
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE`: before the kernel's stack, on any interface.
const FLAG_GENERIC: u32 = 2;
/// `XDP_FLAGS_DRV_MODE`: in the interface's driver.
const FLAG_NATIVE: u32 = 4;

/// `BPF_F_NO_PREALLOC`: a map takes memory for what is in it.
const FLAG_BY_NEED: u32 = 1;
/// So many addresses can be claimed on an interface.
pub const CLAIMS_MAX: u32 = 16_384;

/// The verifier's words that are kept: the last lines say why.
const LOG_BYTES: usize = 1 << 16;

fn map(kind: u32, key_bytes: u32, entries: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut attributes = Attributes::default();
    attributes.put(0, kind).put(4, key_bytes).put(8, 4).put(12, entries).put(16, flags);
    sys::bpf_descriptor(MAP_CREATE, &mut attributes)
}

/// The map from queues to sockets.
pub(crate) fn socket_map(queues: u32) -> Result<OwnedFd, Refused> {
    map(MAP_TYPE_XSKMAP, 4, queues, 0).map_err(|error| Refused::of("map of sockets", error))
}

/// The map of addresses whose frames are claimed, empty.
pub(crate) fn claim_map() -> Result<OwnedFd, Errno> {
    map(MAP_TYPE_HASH, CLAIM_KEY_BYTES, CLAIMS_MAX, FLAG_BY_NEED)
}

/// Puts an address into that map.
pub(crate) fn claim(map: &OwnedFd, address: MacAddr) -> Result<(), Errno> {
    update(map, &key_of(address), 1)
}

/// Takes one out.
pub(crate) fn disclaim(map: &OwnedFd, address: MacAddr) -> Result<(), Errno> {
    let key = key_of(address);
    let mut attributes = Attributes::default();
    attributes.put(0, map.as_raw_fd() as u32).point(8, &key);
    sys::bpf(MAP_DELETE_ELEM, &mut attributes).map(|_| ())
}

fn key_of(MacAddr([a, b, c, d, e, f]): MacAddr) -> [u8; CLAIM_KEY_BYTES as usize] {
    [a, b, c, d, e, f, 0, 0]
}

/// Puts a queue's socket into the map.
pub(crate) fn set_socket(map: &OwnedFd, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Refused> {
    let value = socket.as_raw_fd() as u32;
    update(map, &queue.to_ne_bytes(), value).map_err(|error| Refused::of("map of sockets", error))
}

fn update(map: &OwnedFd, key: &[u8], value: u32) -> Result<(), Errno> {
    let value = value.to_ne_bytes();
    let mut attributes = Attributes::default();
    attributes.put(0, map.as_raw_fd() as u32).point(8, key).point(16, &value);
    sys::bpf(MAP_UPDATE_ELEM, &mut attributes).map(|_| ())
}

/// Loads the redirect program; on a refusal with the verifier's words.
pub(crate) fn load(
    sockets: &OwnedFd,
    claims: Option<BorrowedFd<'_>>,
    groups: bool,
) -> Result<OwnedFd, Refused> {
    let code = program::encode(&program::redirect(
        sockets.as_fd().as_raw_fd(),
        claims.map(|map| map.as_raw_fd()),
        groups,
    ));
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_ne_bytes()).collect();
    load_code(&bytes)
}

fn load_code(code: &[u8]) -> Result<OwnedFd, Refused> {
    let license = b"Apache-2.0\0";
    let mut attributes = Attributes::default();
    attributes.put(0, PROG_TYPE_XDP).put(4, (code.len() / 8) as u32).point(8, code).point(16, license);
    match sys::bpf_descriptor(PROG_LOAD, &mut attributes) {
        Ok(program) => Ok(program),
        Err(error @ (Errno::INVAL | Errno::ACCESS)) => {
            // Once more, for the log: it costs time, so it is not asked for at first.
            let mut log = vec![0; LOG_BYTES];
            attributes.put(24, 1).put(28, LOG_BYTES as u32).point_mut(32, &mut log);
            match sys::bpf_descriptor(PROG_LOAD, &mut attributes) {
                Ok(program) => Ok(program),
                Err(_) => {
                    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                    let text = String::from_utf8_lossy(&log[..end]).trim().replace('\n', " | ");
                    Err(if text.is_empty() {
                        Refused::of("XDP program", error)
                    } else {
                        Refused::Verifier(text)
                    })
                }
            }
        }
        Err(error) => Err(Refused::of("XDP program", error)),
    }
}

/// The program on its interface, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Drop for Link {
    fn drop(&mut self) {
        // Closing alone would do, unless a child that is about to be another program still has the descriptor.
        let mut attributes = Attributes::default();
        attributes.put(0, self.0.as_raw_fd() as u32);
        let _ = sys::bpf(LINK_DETACH, &mut attributes);
    }
}

/// Attaches the program.
pub(crate) fn attach(program: &OwnedFd, index: u32, native: bool) -> Result<Link, Refused> {
    let mut attributes = Attributes::default();
    let flags = if native { FLAG_NATIVE } else { FLAG_GENERIC };
    attributes.put(0, program.as_raw_fd() as u32).put(4, index).put(8, ATTACH_XDP).put(12, flags);
    sys::bpf_descriptor(LINK_CREATE, &mut attributes).map(Link).map_err(|error| match error {
        Errno::BUSY | Errno::EXIST => Refused::OtherProgram,
        Errno::INVAL => Refused::Unsupported("attaching the XDP program"),
        error => Refused::of("attaching the XDP program", error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_verifier_refuses_comes_with_its_words() {
        // `return r0`, which nobody has set.
        let code = [0x95, 0, 0, 0, 0, 0, 0, 0];
        match load_code(&code) {
            Err(Refused::Verifier(log)) => assert!(log.contains("R0"), "{log}"),
            // An ordinary user may not even ask.
            Err(Refused::Permission(_)) => firelane_skipped::skipped("no right to load programs"),
            other => panic!("{other:?}"),
        }
    }
}
