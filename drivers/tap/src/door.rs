//! The door of a TAP: conversations that their flow's limit would drop anyway end where the sender gives the kernel their
//! frames, on the sender's CPU, and are counted there.
//!
//! Lanes say which (`firelane_frame::Driver::shut_out`). All queues of a TAP have one table, which is the memory of a BPF map;
//! a line of it belongs to the queue that shut its conversation out until it lets it in. A conversation that finds its line
//! taken goes on to its lane. A line rests for a moment before it is another conversation's, so that a sender that has
//! read its old key is done counting.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firelane_frame::Weight;
use firelane_units::{FlowId, Instant, Mtu};

use crate::program::{
    self, BYTES_WORD, FRAMES_WORD, HEAD_WORDS, KEY_WORD, Key, SHUT, SLOT_WORDS, SLOTS, TABLE_BYTES,
};
use crate::sys::{self, Table};

/// The state of a line that has an owner, who is writing its key or letting it rest.
const TAKEN: u64 = 2;
/// How long a line rests: the program runs for less than a microsecond, unless the machine stops under it.
const REST: Duration = Duration::from_millis(2);
/// Ethernet's header.
const LINK_HEADER: u32 = 14;

/// A queue's part in the door of its TAP.
#[derive(Debug)]
pub(crate) struct Door {
    table: Arc<Table>,
    lines: Vec<Line>,
}

/// A line of the table that is this queue's.
#[derive(Debug)]
struct Line {
    slot: usize,
    flow: FlowId,
    /// What has been told of its counters.
    told: Weight,
    /// When the conversation was let in again.
    rests_since: Option<Instant>,
}

/// Hangs a door into a TAP that has this queue.
///
/// # Errors
/// The kernel knows no such programs, or this process may not load them.
pub(crate) fn hang(queue: BorrowedFd<'_>, mtu: Mtu) -> io::Result<Arc<Table>> {
    let map = sys::table_map(TABLE_BYTES)?;
    let frame_max = u32::from(mtu.bytes()) + LINK_HEADER;
    let program = sys::load_program(&program::door(map.as_fd().as_raw_fd(), frame_max))?;
    let table = Table::of(&map, TABLE_BYTES)?;
    sys::set_filter(queue, program.as_fd())?;
    Ok(Arc::new(table))
}

/// Tries whether this process may load such programs; nothing is hung anywhere.
///
/// # Errors
/// Why it may not.
pub fn probe() -> io::Result<()> {
    let map = sys::table_map(TABLE_BYTES)?;
    let frame_max = u32::from(Mtu::ETHERNET.bytes()) + LINK_HEADER;
    sys::load_program(&program::door(map.as_fd().as_raw_fd(), frame_max))?;
    Table::of(&map, TABLE_BYTES).map(drop)
}

impl Door {
    pub(crate) const fn new(table: Arc<Table>) -> Self {
        Self { table, lines: Vec::new() }
    }

    /// What all queues have together.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    /// The same door for another queue.
    pub(crate) fn beside(&self) -> Self {
        Self::new(self.table())
    }

    /// Shuts out the conversation that `frame` is of; whether it is out then.
    pub(crate) fn shut_out(&mut self, now: Instant, frame: &[u8], flow: FlowId) -> bool {
        let Some(key) = key(frame) else { return false };
        let slot = program::slot_of(&key);
        self.free_rested(now);
        let words = line(&self.table, slot);
        let is_its =
            || words[KEY_WORD..].iter().zip(key).all(|(word, part)| word.load(Ordering::Relaxed) == part);
        match self.lines.iter_mut().find(|it| it.slot == slot) {
            // The same conversation may have its line back at once.
            Some(it) if it.flow == flow && is_its() => {
                if it.rests_since.take().is_none() {
                    return true;
                }
            }
            Some(_) => return false,
            None if words[0].compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err() => {
                return false;
            }
            None => {
                words[KEY_WORD..]
                    .iter()
                    .zip(key)
                    .for_each(|(word, part)| word.store(part, Ordering::Relaxed));
                self.lines.push(Line { slot, flow, told: counted(words), rests_since: None });
            }
        }
        words[0].store(SHUT, Ordering::Release);
        self.table.words()[0].fetch_add(1, Ordering::Release);
        true
    }

    /// Lets the conversations of `flow` in again.
    pub(crate) fn let_in(&mut self, now: Instant, flow: FlowId) {
        let Self { table, lines } = self;
        for it in lines.iter_mut().filter(|it| it.flow == flow && it.rests_since.is_none()) {
            open(table, it.slot);
            it.rests_since = Some(now);
        }
    }

    /// What ended here since this was last asked, flow by flow.
    pub(crate) fn turned_away(&mut self, tell: &mut dyn FnMut(FlowId, Weight)) {
        for it in &mut self.lines {
            let all = counted(line(&self.table, it.slot));
            let new = Weight {
                packets: all.packets.wrapping_sub(it.told.packets),
                bytes: all.bytes.wrapping_sub(it.told.bytes),
            };
            it.told = all;
            if new.packets > 0 {
                tell(it.flow, new);
            }
        }
    }

    /// Gives up the lines that have rested and been told of.
    fn free_rested(&mut self, now: Instant) {
        let table = &self.table;
        self.lines.retain(|it| {
            let words = line(table, it.slot);
            let is_free =
                it.rests_since.is_some_and(|since| since + REST <= now) && counted(words) == it.told;
            if is_free {
                words[0].store(0, Ordering::Release);
            }
            !is_free
        });
    }
}

impl Drop for Door {
    /// The lines are anybody's again. What a sender counts that has just read its key is whoever's takes the line next.
    fn drop(&mut self) {
        for it in &self.lines {
            if it.rests_since.is_none() {
                open(&self.table, it.slot);
            }
            line(&self.table, it.slot)[0].store(0, Ordering::Release);
        }
    }
}

fn line(table: &Table, slot: usize) -> &[AtomicU64] {
    &table.words()[HEAD_WORDS + slot * SLOT_WORDS..][..SLOT_WORDS]
}

/// Lets the conversation of a line in; the line stays its owner's.
fn open(table: &Table, slot: usize) {
    line(table, slot)[0].store(TAKEN, Ordering::Release);
    table.words()[0].fetch_sub(1, Ordering::Release);
}

fn counted(line: &[AtomicU64]) -> Weight {
    let [packets, bytes] = [FRAMES_WORD, BYTES_WORD].map(|word| line[word].load(Ordering::Relaxed));
    Weight { packets, bytes }
}

/// How many frames have ended here, of whatever conversation: lines go on counting with their next one.
pub(crate) fn counted_in_all(table: &Table) -> u64 {
    (0..SLOTS).map(|slot| counted(line(table, slot)).packets).sum()
}

/// The conversation of a frame, if the program can tell it: TCP or UDP, whole, right behind IP's shortest header, in no
/// VLAN.
fn key(frame: &[u8]) -> Option<Key> {
    let byte = |at: usize| frame.get(at).copied().map(u64::from);
    let half = |at: usize| Some(byte(at)? << 8 | byte(at + 1)?);
    let word = |at: usize| Some(half(at)? << 16 | half(at + 2)?);
    let long = |at: usize| Some(word(at)? << 32 | word(at + 4)?);
    let last = |version: u64, protocol: u64, class: u64, ports: u64| {
        matches!(protocol, 6 | 17).then_some(ports << 32 | version << 16 | protocol << 8 | class)
    };
    match half(12)? {
        0x0800 if byte(14)? == 0x45 && half(20)? & 0x3fff == 0 => {
            Some([0, word(26)?, 0, word(30)?, last(4, byte(23)?, byte(15)?, word(34)?)?])
        }
        0x86dd => {
            let class = word(14)? >> 20 & 0xff;
            Some([long(22)?, long(30)?, long(38)?, long(46)?, last(6, byte(20)?, class, word(54)?)?])
        }
        _ => None,
    }
}
