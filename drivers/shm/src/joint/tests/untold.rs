//! What a peer's program has not heard of when whoever was to tell it dies, and what it is not to be told over and over.

use super::*;

#[test]
fn what_the_dead_may_not_have_told_is_text_an_end_or_room_and_not_silence() {
    let world = World::new(2000, 2000);
    world.fuse();
    let untold = || [0, 1].map(|at| world.joint().may_be_untold(at));
    assert_eq!(untold(), [false, false], "nobody has anything to hear");
    world.write(0, &[7; 10]);
    assert_eq!(untold(), [true, false], "text");
    world.read(1, 100);
    assert_eq!(untold(), [false, false]);
    world.write(0, &[7; 4000]);
    world.read(1, 4000);
    world.beside(0).want_room();
    assert_eq!(untold(), [false, true], "room");
    assert!(world.beside(1).makes_room() && !world.beside(1).makes_room());
    assert_eq!(untold(), [false, true], "who is about to tell may die");
    world.beside(1).has_told_of_room();
    assert_eq!(untold(), [false, false]);
    assert!(world.end(0).end_beside());
    assert_eq!(untold(), [true, false], "an end");
}

#[test]
fn a_full_direction_has_no_room_whatever_its_limit_says() {
    let world = World::new(2000, 2000);
    world.fuse();
    let side = &world.joint().sides[0];
    side.limit.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(world.write(0, &[7; 9000]), RING);
    assert_eq!(world.beside(0).room(), Some((0, RING)));
    assert_eq!(world.joint().unread(0), RING as u64);
    world.beside(0).want_room();
    assert!(!world.beside(1).makes_room());
    world.read(1, RING);
    assert!(world.beside(1).makes_room());
}

#[test]
fn a_write_ends_however_often_its_limit_is_another() {
    let world = World::new(2000, 2000);
    world.fuse();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hostile = || {
            while !is_over.load(Ordering::Relaxed) {
                world.joint().sides[0].state.fetch_xor(way::AGE_ONE, Ordering::Relaxed);
            }
        };
        scope.spawn(hostile);
        let begin = std::time::Instant::now();
        let mut has_given_up = false;
        while !has_given_up && begin.elapsed().as_secs() < 20 {
            has_given_up = world.write(0, &[7; 2000]) == 0;
            world.read(1, 4000);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(has_given_up, "each write went on until it was alone");
    });
}
