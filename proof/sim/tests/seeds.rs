//! Worlds by the hundred: bytes arrive as they were sent, everything ends, every frame is accounted for.

use firelane_sim::{Scale, for_seeds, fresh_seeds, play};

#[test]
fn small_worlds_a() {
    for_seeds(0..145, |seed| drop(play(seed, Scale::QUICK, "small_worlds_a")));
}

#[test]
fn small_worlds_b() {
    for_seeds(1000..1145, |seed| drop(play(seed, Scale::QUICK, "small_worlds_b")));
}

#[test]
fn crowded_worlds() {
    for_seeds(2000..2010, |seed| drop(play(seed, Scale::CROWD, "crowded_worlds")));
}

#[test]
#[ignore = "runs for minutes: make soak"]
fn soak_crowded_worlds() {
    for_seeds(fresh_seeds(30_000, 500), |seed| drop(play(seed, Scale::CROWD, "soak_crowded_worlds")));
}

#[test]
#[ignore = "runs for minutes: make soak"]
fn soak_large_worlds() {
    for_seeds(fresh_seeds(0, 200), |seed| drop(play(seed, Scale::LARGE, "soak_large_worlds")));
}

#[test]
#[ignore = "runs for minutes: make soak"]
fn soak_small_worlds() {
    for_seeds(fresh_seeds(10_000, 10_000), |seed| drop(play(seed, Scale::QUICK, "soak_small_worlds")));
}

/// Pacing held a repetition that an acknowledgement then made needless: the lane asks the connection once more, or its
/// deadline would stay in the past.
#[test]
fn a_wait_for_what_became_needless_ends() {
    drop(play(13_531, Scale::QUICK, "soak_small_worlds"));
}

/// BBR under a window of one segment, on a path whose round trip is the same each time: the pace that a storm left behind
/// does not stay.
#[test]
fn a_pace_from_a_storm_does_not_stay() {
    drop(play(16_461, Scale::QUICK, "soak_small_worlds"));
}

#[test]
fn a_seed_plays_the_same_twice() {
    for_seeds(500..505, |seed| {
        let play = || play(seed, Scale::QUICK, "a_seed_plays_the_same_twice");
        assert_eq!(play(), play());
    });
}
