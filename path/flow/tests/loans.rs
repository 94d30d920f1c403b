//! Frames beside text that needs none ([`Lender`]) at one limit, in virtual time.

#![allow(clippy::unwrap_used)] // Helpers of tests, outside #[test] functions.

mod support;

use core::time::Duration;

use firelane_flow::{Credit, Lender, Loan, UnderWay};
use firelane_units::{BitRate, Bytes};
use proptest::prelude::*;
use support::{LINK, OUT, World};

const FRAME: usize = 1514;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A borrower wants all that there is, and asks again soon. A socket asks whether it may send, and comes again when it
    /// was told. Both get their share, in a lane that is late now and then, and the limit stays what it is.
    #[test]
    fn a_socket_gets_its_share_beside_a_borrower(
        mbps in 1u64..200,
        lateness in prop::collection::vec(100u64..100_000, 1..20),
        asks_after in 0u64..20,
    ) {
        let mut world = World::new();
        world.limited(0, None, mbps);
        let socket = world.free(1, Some(0));
        let (mut lender, mut borrowed, mut turns) = (Lender::default(), 0, 0);
        let loan = Loan { borrower: (), ways: [Some((LINK, OUT)), None], wanted: Bytes(1 << 20) };
        lender.ask(world.now, loan);
        let (start, mut socket_at, mut asks_at) = (world.now, world.now, None);
        while world.now < start + Duration::from_secs(2) {
            let goes_first = lender.goes_first(world.now);
            if asks_at.take_if(|at| *at <= world.now).is_some() {
                lender.ask(world.now, loan);
            }
            let mut lend = |world: &mut World, lender: &mut Lender<()>| {
                lender.lend(world.now, &mut world.flows, |_, bytes| {
                    borrowed += bytes.0;
                    asks_at = Some(world.now + Duration::from_micros(asks_after));
                });
            };
            if goes_first {
                lend(&mut world, &mut lender);
            }
            let next_release = world.release();
            while world.now >= socket_at {
                match world.flows.credit(world.now, (socket, OUT), None, UnderWay::default()) {
                    Credit::Bytes(bytes) => {
                        (0..(bytes.0 / FRAME as u64).max(1)).for_each(|_| world.send(socket, OUT, FRAME));
                    }
                    Credit::At(at) => socket_at = at,
                    Credit::Unlimited => panic!("the flow is limited"),
                }
            }
            lend(&mut world, &mut lender);
            let next = [next_release, lender.next(), Some(socket_at), asks_at].into_iter().flatten();
            turns += 1;
            let late = Duration::from_nanos(lateness[turns % lateness.len()]);
            world.now = next.min().unwrap().max(world.now) + late;
        }
        let sent = world.bytes_of(socket, start);
        let due = BitRate::from_mbps(mbps).bytes_in(Duration::from_secs(2)).0;
        prop_assert!(sent > due / 4, "{sent} of {due}, {borrowed} borrowed");
        let allowed = (due / 100).max(3 * FRAME as u64);
        prop_assert!((sent + borrowed).abs_diff(due) <= allowed, "{sent} and {borrowed} of {due}");
        prop_assert_eq!(world.drops.total(), 0);
    }
}
