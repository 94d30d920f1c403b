//! A session for which there are not enough descriptors leaves nothing behind, wherever they end.
//!
//! Alone in its file, because it changes how many this process may have.

mod support;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use firelane::{Limits, Owner, WireConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::World;

/// The arenas of this process, by their descriptors.
fn arenas() -> usize {
    let fds = fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
    fds.filter(|fd| fs::read_link(fd).is_ok_and(|it| it.to_string_lossy().contains("memfd:"))).count()
}

#[test]
fn a_session_that_cannot_begin_leaves_no_arena() {
    let world = World::of(2, WireConfig::default());
    let usual = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").unwrap().as_raw_fd().unsigned_abs();
    let begin = || {
        let (owner, place) = (Owner::default(), (world.stack.id(), "test"));
        world.hub.lock().unwrap().begin(owner, place, Limits::default(), Vec::new())
    };
    let mut room = 0;
    loop {
        setrlimit(Resource::Nofile, Rlimit { current: Some(u64::from(next) + room), ..usual }).unwrap();
        let begun = begin();
        setrlimit(Resource::Nofile, usual).unwrap();
        if begun.is_ok() {
            break;
        }
        // A lane that looks round meanwhile lets go of one in its next turn.
        let begin = Instant::now();
        while arenas() > 0 {
            assert!(begin.elapsed() < Duration::from_secs(5), "an arena is left, with room for {room}");
            thread::sleep(Duration::from_millis(1));
        }
        room += 1;
        assert!(room < 100, "{begun:?}");
    }
    assert!(room > 2, "two lanes, each with a bell, and the arena: {room}");
    assert!(arenas() > 0);
}
