//! The books of the reassembly, whatever comes.

use firelane_frame::{Pools, PoolsConfig};
use proptest::prelude::*;

use super::*;

/// A piece of so many units of eight octets.
fn piece(pools: &mut Pools, offset: u32, units: usize, more: bool, ecn: Ecn) -> Piece {
    let mut frame = pools.take(units * 8).expect("the pool is large enough");
    frame.append(units * 8).fill(offset as u8);
    Piece { offset: offset * 8, start: 0, more, ecn, header_len: 20, frame }
}

fn key(source: u8, identification: u32) -> Key {
    let octets = [10, 0, 0, source];
    let src = match source % 2 {
        0 => octets.into(),
        _ => core::net::Ipv4Addr::from(octets).to_ipv6_mapped().into(),
    };
    Key { src, dst: src, identification, protocol: IpProtocol::UDP }
}

/// Places that are in a queue, from its first on.
fn queued(it: &Reassembly, queue: Queue, of: Of) -> Vec<usize> {
    let next = |&at: &usize| {
        let (_, behind) = it.datagrams[at].neighbours[of as usize];
        (behind != NOWHERE).then_some(behind as usize)
    };
    let first = (queue.first != NOWHERE).then_some(queue.first as usize);
    core::iter::successors(first, next).collect()
}

fn check(it: &Reassembly) {
    let mut all: Vec<usize> = it.by_age.iter().flat_map(|&queue| queued(it, queue, Of::Version)).collect();
    all.sort_unstable();
    assert_eq!((all.len(), all.len() + it.free.len()), (it.by_key.len(), it.datagrams.len()));
    let of = |at: &usize| &it.datagrams[*at];
    assert_eq!(all.iter().map(|at| of(at).pieces.as_slice().len()).sum::<usize>(), it.held);
    assert_eq!(all.iter().map(|at| of(at).memory).sum::<u32>(), it.memory);
    let pieces = |at: &usize| of(at).pieces.as_slice().iter().map(Piece::memory).sum::<u32>();
    assert!(all.iter().all(|at| pieces(at) == of(at).memory && of(at).is_condemned == (pieces(at) == 0)));
    let mut seen = 0;
    for (at, source) in
        it.sources.iter().enumerate().filter(|(at, _)| !it.free_sources.contains(&(*at as u32)))
    {
        let its = queued(it, source.queue, Of::Source);
        assert!(its.iter().all(|place| of(place).source == at as u32 && of(place).key.src == source.address));
        assert_eq!(
            (its.len(), its.iter().map(|at| of(at).memory).sum()),
            (source.count as usize, source.memory)
        );
        assert!(source.count <= SOURCE_DATAGRAMS_MAX && source.count > 0);
        seen += its.len();
    }
    assert_eq!((seen, it.by_address.len()), (all.len(), it.sources.len() - it.free_sources.len()));
    assert!(it.memory <= MEMORY_MAX && it.by_key.len() <= DATAGRAMS_MAX);
}

/// A device may have put small packets into large storage.
#[test]
fn one_datagram_has_no_more_memory_than_all() {
    let mut pools = Pools::new(PoolsConfig { small_slots: 1, large_slots: PIECES_MAX as u32 });
    let mut it = Reassembly::new(Keyed::new([1; 16], 0));
    let mut limited = 0;
    for nth in 0..100 {
        let mut frame = pools.take(60_000).expect("the pool is large enough");
        frame.append(8);
        let ecn = Ecn::NotCapable;
        let piece = Piece { offset: nth * 16, start: 0, more: true, ecn, header_len: 20, frame };
        let added = it.add(Instant::ZERO, key(2, 1), piece);
        limited += usize::from(matches!(added, Added::Refused(_, DropReason::ReassemblyLimit)));
        check(&it);
    }
    assert_eq!((limited, it.held, it.memory), (1, 0, 0), "it is condemned");
}

proptest! {
    #[test]
    fn the_books_add_up(
        steps in prop::collection::vec((0..3u8, 0..4u32, 0..5u32, 1..4usize, any::<bool>(), 0..20_000u64), 1..120),
    ) {
        let mut pools = Pools::new(PoolsConfig { small_slots: 200, large_slots: 1 });
        let mut it = Reassembly::new(Keyed::new([3; 16], 6));
        let (mut now, mut gone) = (Instant::ZERO, 0);
        for (nth, (source, identification, offset, units, more, pause)) in steps.into_iter().enumerate() {
            now += Duration::from_millis(pause);
            let ecn = if nth % 7 == 0 { Ecn::Congested } else { Ecn::Capable0 };
            let piece = piece(&mut pools, offset, units, more, ecn);
            gone += match it.add(now, key(source, identification), piece) {
                Added::Waiting => 0,
                Added::Complete(pieces, _) => pieces.len(),
                Added::Refused(..) => 1,
            };
            check(&it);
            if nth % 3 == 0 {
                while let Some(expired) = it.poll(now) {
                    gone += usize::from(expired.first.is_some());
                    check(&it);
                }
                prop_assert!(it.poll_at().is_none_or(|at| at > now));
            }
            gone += core::iter::from_fn(|| it.poll_given_up()).count();
            prop_assert_eq!(gone + it.held(), nth + 1, "each piece is held or ends once");
        }
    }
}

#[test]
fn the_one_whose_time_is_up_first_gives_way_whatever_its_version() {
    let mut pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 1 });
    let mut it = Reassembly::new(Keyed::new([3; 16], 6));
    let mut add = |it: &mut Reassembly, seconds, source, identification| {
        let piece = piece(&mut pools, 0, 1, true, Ecn::NotCapable);
        assert!(matches!(
            it.add(Instant::from_secs(seconds), key(source, identification), piece),
            Added::Waiting
        ));
        core::iter::from_fn(|| it.poll_given_up()).count()
    };
    // One of IPv6 ends at 61 s, as many of IPv4 as there is room for at 35 s, and nobody has more than his quarter.
    assert_eq!(add(&mut it, 1, 1, 0), 0);
    let others =
        (1..DATAGRAMS_MAX as u32).map(|n| add(&mut it, 5, 2 * (1 + (n % 8) as u8), n)).sum::<usize>();
    assert_eq!(others, 0);
    assert_eq!(add(&mut it, 6, 3, 0), 1, "one of IPv4, though an older one is there");
    assert_eq!(
        (it.find_source(key(1, 0).src, hash_of(it.keyed, [key(1, 0).src], 0)).is_some(), it.held()),
        (true, 2048)
    );
    check(&it);
}
