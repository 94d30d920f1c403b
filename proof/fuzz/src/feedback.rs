//! What a run showed, so that the runner keeps inputs that showed something new.
//!
//! A target notes what it met: an error, a state, a reason. That is coarser than the coverage of an
//! instrumented build and needs none.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

thread_local! {
    static NOTES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The most notes of one run: enough to tell runs apart.
const NOTES_MAX: usize = 4096;

/// Whether `FIRELANE_FUZZ_TRACE` is set: a replay then prints what happens.
pub static TRACES: LazyLock<bool> = LazyLock::new(|| std::env::var_os("FIRELANE_FUZZ_TRACE").is_some());

/// Notes that `what` was met.
pub fn note(what: impl Hash + Debug) {
    if *TRACES {
        eprintln!("note {what:?}");
    }
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    NOTES.with_borrow_mut(|notes| {
        if notes.len() < NOTES_MAX {
            notes.push(hasher.finish());
        }
    });
}

/// Notes that a value of this form was met: the type's variant as its `Debug` names it, without numbers.
pub fn note_form(what: impl Debug) {
    let form: String = format!("{what:?}").chars().filter(|c| !c.is_ascii_digit()).take(80).collect();
    note(form);
}

/// Takes what was noted since the last call.
pub fn take_notes() -> Vec<u64> {
    NOTES.take()
}
