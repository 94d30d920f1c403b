//! Directions at rest, whose memory goes back while somebody writes (J11).

use core::cell::Cell;

use super::*;

/// A segment's memory that the daemon gives back when somebody has copied into it, and before he publishes that: in so many rests.
struct Emptied<'a> {
    world: &'a World,
    rests: Cell<u32>,
}

impl Storage for Emptied<'_> {
    fn copy_in(&self, at: u64, bytes: &[u8]) -> bool {
        let is_inside = self.world.segment.mapping().copy_in(at, bytes);
        let rests = self.rests.take();
        if rests > 0 {
            assert!((0..rests).all(|_| self.world.joint().rest(0)), "nothing is unread");
            assert!(self.world.segment.mapping().copy_in(LAYOUT.storage_at(), &[0; RING]));
            self.world.joint().offer();
        }
        is_inside
    }

    fn copy_out(&self, at: u64, to: &mut [u8]) -> bool {
        self.world.segment.mapping().copy_out(at, to)
    }
}

/// Where it was joined, though the bit of a rest is as it was after two of them, which is no proof that the memory is there.
#[test]
fn what_is_written_while_a_direction_rests_is_whole() {
    for (was_joined, rests, limits) in
        [(false, 1, 0), (true, 1, 0), (true, 2, 0), (false, 1, 3), (true, 1, 0x7fff)]
    {
        let world = World::new(1024, 2048);
        world.fuse();
        let mut cursor = 0;
        if was_joined {
            assert_eq!(world.write(0, &bytes_at(0, 700)), 700);
            assert_eq!(world.read(1, 1000), bytes_at(0, 700));
            cursor = 700;
        }
        (0..limits).for_each(|_| {
            world.joint().begin_limit(0);
            world.joint().end_limit(0);
        });
        let memory = Emptied { world: &world, rests: Cell::new(rests) };
        let beside = Beside { memory: &memory, joint: world.joint(), at: 0 };
        let text = bytes_at(cursor, 900);
        let own_tail = world.arenas[0].mapping().block(0).unwrap().rings.one.tail.load(Ordering::Relaxed);
        assert_eq!(
            beside.write(own_tail, &[IoSlice::new(&text)]),
            Some(Ok(900)),
            "{was_joined} {rests} {limits}"
        );
        assert_eq!(world.read(1, 1000), text, "{was_joined} {rests} {limits}");
    }
}

#[test]
fn what_is_unread_rests_not_and_is_read() {
    let world = World::new(1024, 2048);
    world.fuse();
    assert_eq!(world.write(0, &bytes_at(0, 500)), 500);
    assert!(!world.joint().rest(0) && world.joint().rest(1));
    assert_eq!(world.write(0, &bytes_at(500, 100)), 100, "by TCP");
    world.joint().offer();
    assert_eq!(world.write(0, &bytes_at(600, 100)), 100, "still by TCP: the extent is unread");
    world.carry(0, 200);
    assert_eq!([world.read(1, 500), world.read(1, 1000)].concat(), bytes_at(0, 700));
    assert_eq!(world.write(0, &bytes_at(700, 100)), 100);
    assert!(world.joint().is_joined());
    assert_eq!(world.read(1, 1000), bytes_at(700, 100));
}
