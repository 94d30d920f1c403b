//! Interfaces as programs see them, and SO_BINDTODEVICE: the engine knows VNICs by number, and names are the daemon's.
//!
//! Called by `programs.rs` with a session's requests. A name becomes the number that SO_BINDTOIFINDEX takes, and a number that is
//! told becomes a name, as socket(7) has them.

use std::collections::BTreeSet;

use firelane_shm::control::{ADDRESSES_MAX, Answer, Interface, Request};
use rustix::io::Errno;

/// `SOL_SOCKET`, and its options (`asm-generic/socket.h`).
const LEVEL: i32 = 1;
const BINDTODEVICE: i32 = 25;
const BINDTOIFINDEX: i32 = 62;
/// The room that a name needs, with its zero (`IFNAMSIZ`).
const NAME_BYTES: u32 = 16;
/// The loopback device, which is no VNIC.
const LOOPBACK: (&[u8], u32) = (b"lo", 1);

/// A request as the engine understands it, among these interfaces. Whether a name is asked for.
pub(crate) fn by_number(
    request: Request,
    interfaces: impl FnOnce() -> Vec<Interface>,
) -> Result<(Request, bool), Errno> {
    match request {
        Request::SetOption { socket, level: LEVEL, name: BINDTODEVICE, value } => {
            // As Linux does: what is longer than a name is cut.
            let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
            let name = &name[..name.len().min(NAME_BYTES as usize - 1)];
            let index = match name {
                [] => 0,
                name if name == LOOPBACK.0 => LOOPBACK.1,
                name => {
                    let named = |it: &Interface| it.name.as_bytes() == name;
                    interfaces().into_iter().find(named).ok_or(Errno::NODEV)?.index
                }
            };
            let value = index.to_ne_bytes().to_vec();
            Ok((Request::SetOption { socket, level: LEVEL, name: BINDTOIFINDEX, value }, false))
        }
        Request::GetOption { socket, level: LEVEL, name: BINDTODEVICE, .. } => {
            let len = size_of::<u32>() as u32;
            Ok((Request::GetOption { socket, level: LEVEL, name: BINDTOIFINDEX, len }, true))
        }
        other => Ok((other, false)),
    }
}

/// Whether a request is about an interface by its name.
pub(crate) const fn are_named(request: &Request) -> bool {
    matches!(
        request,
        Request::SetOption { level: LEVEL, name: BINDTODEVICE, .. }
            | Request::GetOption { level: LEVEL, name: BINDTODEVICE, .. }
    )
}

/// The answer to who has asked for a name and has room for `room` bytes.
pub(crate) fn by_name(
    answer: Answer,
    room: u32,
    interfaces: impl FnOnce() -> Vec<Interface>,
) -> Result<Answer, Errno> {
    let Answer::Option { value } = &answer else { return Ok(answer) };
    let index = value.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    if index == 0 {
        return Ok(Answer::Option { value: Vec::new() });
    }
    if room < NAME_BYTES {
        return Err(Errno::INVAL);
    }
    let name = match index {
        index if index == LOOPBACK.1 => LOOPBACK.0.to_vec(),
        // A VNIC that is gone has no name.
        _ => interfaces().into_iter().find(|it| it.index == index).ok_or(Errno::NODEV)?.name.into_bytes(),
    };
    Ok(Answer::Option { value: name.into_iter().chain([0]).collect() })
}

/// As many as an answer has room for. What is left out is another address of a VNIC and family that are there: a program that finds no VNIC
/// of that name takes the kernel's, and one that finds no address of a family asks for no names of it.
pub(crate) fn that_fit(interfaces: Vec<Interface>) -> Vec<Interface> {
    let mut seen = BTreeSet::new();
    let mut is_first = |it: &Interface| seen.insert((it.index, it.address.map(|(ip, _)| ip.is_ipv6())));
    let firsts: Vec<bool> = interfaces.iter().map(&mut is_first).collect();
    let count = firsts.iter().filter(|&&is_first| is_first).count();
    let (mut of_firsts, mut others) = (ADDRESSES_MAX, ADDRESSES_MAX.saturating_sub(count));
    let mut fits = |is_first: bool| {
        let left = if is_first { &mut of_firsts } else { &mut others };
        let has_room = *left > 0;
        *left -= usize::from(has_room);
        has_room
    };
    interfaces.into_iter().zip(firsts).filter(|&(_, is_first)| fits(is_first)).map(|(it, _)| it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_shm::control::{Reach, SocketId};

    const SOCKET: SocketId = SocketId(3);

    fn interfaces() -> Vec<Interface> {
        let interface = |name: &str, index| Interface {
            name: name.into(),
            index,
            mtu: 1500,
            mac: [2; 6],
            reach: Reach::Link,
            address: None,
        };
        vec![interface("web0", 7), interface("web00", 9)]
    }

    fn set(value: &[u8]) -> Result<u32, Errno> {
        let request = Request::SetOption { socket: SOCKET, level: 1, name: 25, value: value.to_vec() };
        match by_number(request, interfaces)? {
            (Request::SetOption { socket: SOCKET, level: 1, name: 62, value }, false) => {
                Ok(u32::from_ne_bytes(value.try_into().unwrap()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_become_numbers_and_numbers_names() {
        for (name, index) in [
            (&b"web0"[..], Ok(7)),
            (b"web0\0", Ok(7)),
            (b"web0\0rest", Ok(7)),
            (b"web00", Ok(9)),
            (b"lo", Ok(1)),
            (b"web", Err(Errno::NODEV)),
            (b"", Ok(0)),
            (b"\0\0\0\0", Ok(0)),
            (b"a name that is too long", Err(Errno::NODEV)),
        ] {
            assert_eq!(set(name), index, "{name:?}");
        }
        let told = |index: u32, room| {
            by_name(Answer::Option { value: index.to_ne_bytes().to_vec() }, room, interfaces).map(|answer| {
                match answer {
                    Answer::Option { value } => value,
                    other => panic!("{other:?}"),
                }
            })
        };
        assert_eq!(told(0, 0), Ok(vec![]));
        assert_eq!(told(7, 16), Ok(b"web0\0".to_vec()));
        assert_eq!(told(1, 16), Ok(b"lo\0".to_vec()));
        assert_eq!(told(9, 15), Err(Errno::INVAL));
        assert_eq!(told(8, 16), Err(Errno::NODEV));
        let failed = Answer::Failed { errno: 9 };
        assert_eq!(by_name(failed.clone(), 16, interfaces), Ok(failed));
    }

    #[test]
    fn whatever_else_is_asked_is_handed_on() {
        for request in [
            Request::GetOption { socket: SOCKET, level: 0, name: 25, len: 4 },
            Request::SetOption { socket: SOCKET, level: 1, name: 62, value: vec![1, 0, 0, 0] },
            Request::Names { socket: SOCKET },
        ] {
            assert_eq!(by_number(request.clone(), || panic!("nobody asks for names")), Ok((request, false)));
        }
    }

    /// As many addresses of a VNIC, in order.
    fn addresses(index: u32, family: &str, count: usize) -> impl Iterator<Item = Interface> {
        (1..=count).map(move |at| Interface {
            name: format!("web{index}"),
            index,
            mtu: 1500,
            mac: [2; 6],
            reach: Reach::Link,
            address: Some((format!("{family}{at}").parse().unwrap(), 24)),
        })
    }

    #[test]
    fn every_vnic_and_family_is_told_before_second_addresses_are() {
        let all: Vec<Interface> = addresses(1, "10.0.0.", 81)
            .chain(addresses(1, "fd00::", 2))
            .chain(addresses(2, "10.0.1.", 3))
            .collect();
        let told = that_fit(all.clone());
        assert_eq!(told.len(), ADDRESSES_MAX);
        let of = |index: u32, is_v6: bool| {
            let is_its = |it: &&Interface| it.index == index && it.address.unwrap().0.is_ipv6() == is_v6;
            told.iter().filter(is_its).count()
        };
        assert_eq!([of(1, false), of(1, true), of(2, false)], [ADDRESSES_MAX - 2, 1, 1]);
        let places: Vec<_> = told.iter().map(|it| all.iter().position(|other| other == it)).collect();
        assert!(places.is_sorted(), "they are in order");
        let few: Vec<Interface> = all[..ADDRESSES_MAX].to_vec();
        assert_eq!(that_fit(few.clone()), few);
        let many: Vec<Interface> = (0..100).flat_map(|index| addresses(index, "10.0.0.", 2)).collect();
        assert_eq!(that_fit(many).len(), ADDRESSES_MAX);
    }
}
