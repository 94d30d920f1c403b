//! What an interface and whoever is at the other end of its cable could do, and what they agreed on (ethtool's link settings and
//! pause parameters).
//!
//! Called by the daemon for those who look at devices. Asks the kernel and changes nothing. The bits are those of Linux'
//! `ethtool_link_mode_bit_indices`.

use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::{self, ETHTOOL_WORDS};

const GET_PAUSE: u32 = 0x12;
const GET_LINK_SETTINGS: u32 = 0x4c;
/// Words of `struct ethtool_link_settings` before its bit maps.
const HEAD_WORDS: usize = 12;
const AUTONEG_BIT: usize = 6;
const PAUSE_BIT: usize = 13;
const ASYM_PAUSE_BIT: usize = 14;
/// Bits of modes with their speeds in Mb/s; these are half duplex, all others full.
const HALF: [(usize, u32); 4] = [(0, 10), (2, 100), (4, 1000), (90, 100)];
/// The first and the last bit of each run of full-duplex modes of one speed.
const FULL: [(usize, usize, u32); 30] = [
    (1, 1, 10),
    (3, 3, 100),
    (5, 5, 1000),
    (12, 12, 10_000),
    (15, 15, 2500),
    (17, 17, 1000),
    (18, 20, 10_000),
    (21, 22, 20_000),
    (23, 26, 40_000),
    (27, 30, 56_000),
    (31, 33, 25_000),
    (34, 35, 50_000),
    (36, 39, 100_000),
    (40, 40, 50_000),
    (41, 41, 1000),
    (42, 46, 10_000),
    (47, 47, 2500),
    (48, 48, 5000),
    (52, 56, 50_000),
    (57, 61, 100_000),
    (62, 66, 200_000),
    (67, 67, 100),
    (68, 68, 1000),
    (69, 73, 400_000),
    (75, 79, 100_000),
    (80, 84, 200_000),
    (85, 89, 400_000),
    (91, 91, 100),
    (92, 92, 10),
    (93, 98, 800_000),
];

/// A speed in Mb/s, and with which duplex it goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkSpeed {
    /// In Mb/s.
    pub mbps: u32,
    /// Both may send at once.
    pub full: bool,
    /// They take turns.
    pub half: bool,
}

/// Which frames stop a sender for a moment: those that are received, those that are sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PauseFrames {
    /// Others may stop this one.
    pub rx: bool,
    /// This one may stop others.
    pub tx: bool,
}

/// What one end could do, or says that it will.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkModes {
    /// Negotiates.
    pub autoneg: bool,
    /// Speeds, the fastest first.
    pub speeds: Vec<LinkSpeed>,
    /// Pause frames.
    pub pause: PauseFrames,
}

/// What is known of an interface's ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkSettings {
    /// Whether what holds was negotiated.
    pub autoneg: bool,
    /// The pause frames that are in use; unknown where the driver has no say on them.
    pub pause: Option<PauseFrames>,
    /// What the device could do; unknown where its driver names no mode, as one without a cable.
    pub capable: Option<LinkModes>,
    /// What it tells the other end.
    pub advertised: Option<LinkModes>,
    /// What the other end told.
    pub peer: Option<LinkModes>,
}

/// Asks the kernel; nothing where there is no such interface, or its driver tells nothing.
pub fn link_settings(name: &str) -> Option<LinkSettings> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    let mut words = [0; ETHTOOL_WORDS];
    words[0] = GET_LINK_SETTINGS;
    // The first answer says how long the maps are, as a negative number.
    sys::ethtool(socket.as_fd(), name, &mut words).ok()?;
    let length = map_words(&words).unsigned_abs();
    words = [0; ETHTOOL_WORDS];
    words[0] = GET_LINK_SETTINGS;
    words[3] = u32::from_ne_bytes([0, 0, 0, length]);
    sys::ethtool(socket.as_fd(), name, &mut words).ok()?;
    let mut settings = read(&words)?;
    let mut pause = [0; ETHTOOL_WORDS];
    pause[0] = GET_PAUSE;
    let told = sys::ethtool(socket.as_fd(), name, &mut pause);
    settings.pause = told.ok().map(|()| PauseFrames { rx: pause[2] != 0, tx: pause[3] != 0 });
    Some(settings)
}

/// `link_mode_masks_nwords`: negative in the kernel's first answer.
fn map_words(words: &[u32; ETHTOOL_WORDS]) -> i8 {
    words[3].to_ne_bytes()[3].cast_signed()
}

fn read(words: &[u32; ETHTOOL_WORDS]) -> Option<LinkSettings> {
    let length = usize::try_from(map_words(words)).ok().filter(|&length| length > 0)?;
    let mut maps = words[HEAD_WORDS..].chunks_exact(length);
    let mut modes = || maps.next().and_then(read_modes);
    let autoneg = words[2].to_ne_bytes()[3] != 0;
    let (capable, advertised, peer) = (modes(), modes(), modes());
    Some(LinkSettings { autoneg, pause: None, capable, advertised, peer })
}

/// The modes of a map; nothing if it has none.
fn read_modes(map: &[u32]) -> Option<LinkModes> {
    let has = |bit: usize| map.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1);
    if map.iter().all(|&word| word == 0) {
        return None;
    }
    let mut speeds: Vec<LinkSpeed> = Vec::new();
    let half = HALF.iter().filter(|(bit, _)| has(*bit)).map(|&(_, mbps)| (mbps, false));
    let full = FULL.iter().filter(|(first, last, _)| (*first..=*last).any(has)).map(|it| (it.2, true));
    for (mbps, is_full) in half.chain(full) {
        let place = speeds.iter().position(|it| it.mbps == mbps).unwrap_or_else(|| {
            speeds.push(LinkSpeed { mbps, full: false, half: false });
            speeds.len() - 1
        });
        speeds[place].full |= is_full;
        speeds[place].half |= !is_full;
    }
    speeds.sort_unstable_by(|a, b| b.cmp(a));
    // IEEE 802.3 annex 28B: who says "asymmetric" alone may stop others; with "pause" as well it is others who may stop him.
    let pause = match (has(PAUSE_BIT), has(ASYM_PAUSE_BIT)) {
        (true, false) => PauseFrames { rx: true, tx: true },
        (true, true) => PauseFrames { rx: true, tx: false },
        (false, true) => PauseFrames { rx: false, tx: true },
        (false, false) => PauseFrames::default(),
    };
    Some(LinkModes { autoneg: has(AUTONEG_BIT), speeds, pause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(length: u8, maps: &[u32]) -> [u32; ETHTOOL_WORDS] {
        let mut words = [0; ETHTOOL_WORDS];
        words[2] = u32::from_ne_bytes([1, 0, 0, 1]);
        words[3] = u32::from_ne_bytes([0, 0, 0, length]);
        words[HEAD_WORDS..HEAD_WORDS + maps.len()].copy_from_slice(maps);
        words
    }

    fn speed(mbps: u32, half: bool, full: bool) -> LinkSpeed {
        LinkSpeed { mbps, full, half }
    }

    #[test]
    fn modes_are_read_as_ethtool_h_numbers_them() {
        // What an e1000e says: 10, 100 half and full, 1000 full, autoneg, TP, pause; and its neighbour that has 1000 alone.
        let copper = 0b1_0000_0000_0000 << 1 | 0b1110_1111;
        let settings = read(&words(3, &[copper, 0, 0, copper & !0xf, 0, 0, 1 << 5 | 1 << 14, 0, 0])).unwrap();
        assert!(settings.autoneg);
        let all = vec![speed(1000, false, true), speed(100, true, true), speed(10, true, true)];
        let both = PauseFrames { rx: true, tx: true };
        assert_eq!(settings.capable, Some(LinkModes { autoneg: true, speeds: all, pause: both }));
        let one = vec![speed(1000, false, true)];
        assert_eq!(settings.advertised, Some(LinkModes { autoneg: true, speeds: one.clone(), pause: both }));
        let asks = PauseFrames { rx: false, tx: true };
        assert_eq!(settings.peer, Some(LinkModes { autoneg: false, speeds: one, pause: asks }));
        // 100 Gb/s over four lanes and 25 Gb/s, from the second word.
        let fibre = read(&words(3, &[0, 1 | 1 << 4, 0])).unwrap();
        assert_eq!(fibre.capable.unwrap().speeds, [speed(100_000, false, true), speed(25_000, false, true)]);
        assert_eq!((fibre.advertised, fibre.peer), (None, None));
    }

    #[test]
    fn no_mode_has_two_speeds_and_what_says_nothing_is_unknown() {
        let bits: Vec<usize> =
            HALF.iter().map(|it| it.0).chain(FULL.iter().flat_map(|it| it.0..=it.1)).collect();
        let mut once = bits.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), bits.len());
        assert!(![AUTONEG_BIT, PAUSE_BIT, ASYM_PAUSE_BIT].iter().any(|bit| bits.contains(bit)));
        assert_eq!(read(&words(0, &[])), None, "the kernel has not answered with its maps");
        assert_eq!(read(&words(3, &[])).unwrap().capable, None);
        assert_eq!(link_settings("no-such-interface"), None);
    }
}
