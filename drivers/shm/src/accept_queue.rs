//! Connections that wait at a listener, in the words of a block of the listener's own: `accept` takes one and asks nobody.
//!
//! The daemon puts blocks' numbers in, whoever has the listener takes them out. A waiter of many sockets, who has a slot in the
//! listener's arena ([`Inbox`](crate::layout::Inbox)), marks it here: he is told of the queue's block as of a stream's, and rung
//! if he sleeps. Who waits in the kernel for the listener's descriptor alone is a *watcher*: as long as there is any, what arrives
//! is told by a message on the descriptor, as it is when there is no room here. Whoever marks his slot, or begins to watch, looks
//! once more afterwards; whoever has put something in looks for marks and watchers afterwards, tells the ones, and takes it back
//! for the others: so it is found. A watcher who dies leaves his count, and the listener goes on by messages; a mark that is left
//! tells somebody in vain.
//!
//! - R1. Who moves `head` on has the connection: one program's thread, or the daemon, which takes it back.
//! - R2. Nothing is put in while a message is unread, so connections are taken in the order in which they came.
//! - R3. The daemon keeps what it has put in, and reads no numbers here. A `head` that cannot be is a program's that harms
//!   its own listener: everything goes by messages from then on.
//!
//! Used by the engine, which feeds it, and by the preloaded library.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::VecDeque;
use std::mem;

use crate::layout::order_for_models;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How many connections there is room for: more are told by messages.
pub(crate) const ROOM: u32 = if cfg!(loom) { 2 } else { 32 };
/// Among the watchers: nobody says that he looks here before he waits. So a queue begins.
const BY_MESSAGES: u32 = 1 << 31;
/// Among them, too: the listener goes by messages from here on, for good.
const GIVEN_UP: u32 = 1 << 30;

/// The words, in place of a stream's ([`crate::Block`]).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct AcceptQueue {
    /// One more than the block's number.
    blocks: [AtomicU32; ROOM as usize],
    /// How many were put in. The daemon's.
    tail: AtomicU32,
    _apart: u32,
    /// The address at which it listens, IPv4's mapped, its first half first. The daemon's.
    address: [AtomicU64; 2],
    _rest_of_line: [u64; 5],
    /// How many were taken out.
    head: AtomicU32,
    /// How many wait in the kernel.
    watchers: AtomicU32,
    /// How many messages were read.
    read: AtomicU32,
    /// The port at which it listens. The daemon's.
    port: AtomicU32,
    /// Which waiter slots are to be told, a bit each.
    waiters: AtomicU64,
    _rest: [u32; 2],
    /// As in every block.
    _generation: AtomicU64,
    _end: [u64; 3],
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    use firelane_frame::{BLOCK_BYTES, GENERATION_WORD};
    assert!(size_of::<AcceptQueue>() == BLOCK_BYTES && offset_of!(AcceptQueue, tail) == 128);
    assert!(
        offset_of!(AcceptQueue, address) == 136
            && offset_of!(AcceptQueue, head) == 192
            && offset_of!(AcceptQueue, read) == 200
            && offset_of!(AcceptQueue, port) == 204
            && offset_of!(AcceptQueue, waiters) == 208
    );
    assert!(offset_of!(AcceptQueue, _generation) == 8 * GENERATION_WORD);
};

impl AcceptQueue {
    /// Takes the block of the connection that has waited longest.
    pub fn take(&self) -> Option<u32> {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let waiting = self.tail.load(Ordering::Acquire).wrapping_sub(head);
            if waiting == 0 || waiting > ROOM {
                return None;
            }
            let block = self.blocks[(head % ROOM) as usize].load(Ordering::Relaxed);
            if self.moves(head, head.wrapping_add(1)) {
                return block.checked_sub(1);
            }
        }
    }

    fn moves(&self, head: u32, to: u32) -> bool {
        self.head.compare_exchange(head, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// How many wait here.
    pub fn waiting(&self) -> u32 {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).wrapping_sub(head).min(ROOM)
    }

    /// Whether nothing waits here.
    pub fn is_empty(&self) -> bool {
        self.tail.load(Ordering::SeqCst) == self.head.load(Ordering::SeqCst)
    }

    /// The caller is about to wait in the kernel for the listener's descriptor: what arrives from here on is told there. He
    /// looks once more first, and calls [`Self::unwatch`] afterwards.
    pub fn watch(&self) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        order_for_models();
    }

    /// He does not wait any more.
    pub fn unwatch(&self) {
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// As if somebody watched as long as it is this listener's: others may wait there of whom the caller does not know, or nobody is to find
    /// anything any more. He looks once more.
    pub fn give_up(&self) {
        self.watchers.fetch_or(GIVEN_UP, Ordering::SeqCst);
        order_for_models();
    }

    /// Whether nobody watches who has begun that for this listener or an earlier one.
    pub fn is_unwatched(&self) -> bool {
        self.watchers.load(Ordering::SeqCst) & !(BY_MESSAGES | GIVEN_UP) == 0
    }

    /// The waiters with these slots are told of what arrives from here on. Each looks once more afterwards.
    pub fn mark(&self, slots: u64) {
        self.waiters.fetch_or(slots, Ordering::SeqCst);
        order_for_models();
    }

    /// They are not any more.
    pub fn unmark(&self, slots: u64) {
        self.waiters.fetch_and(!slots, Ordering::SeqCst);
    }

    /// The slots of those who are to be told, for who has put something in.
    pub fn waiters(&self) -> u64 {
        self.waiters.load(Ordering::SeqCst)
    }

    /// The listener's program looks here before it waits.
    pub fn begin(&self) {
        self.watchers.fetch_and(!BY_MESSAGES, Ordering::SeqCst);
    }

    /// The listener's port.
    pub fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed) as u16
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        let [high, low] = self.address.each_ref().map(|half| u128::from(half.load(Ordering::Relaxed)));
        SocketAddr::new(Ipv6Addr::from_bits(high << 64 | low).to_canonical(), self.port())
    }

    /// The caller has read a message.
    pub fn note_read(&self) {
        self.read.fetch_add(1, Ordering::Release);
    }
}

/// The daemon's side: what it has put in, and how many messages it has sent beside.
#[derive(Debug)]
pub struct Feeder<T> {
    tail: u32,
    sent: u32,
    waiting: VecDeque<T>,
}

impl<T> Feeder<T> {
    /// Of a listener at this address that begins to use the words. Somebody who has used them for an earlier one may be on his way out.
    pub fn begin(words: &AcceptQueue, local: SocketAddr) -> Self {
        let address = match local.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        words.address[0].store((address >> 64) as u64, Ordering::Relaxed);
        words.address[1].store(address as u64, Ordering::Relaxed);
        words.port.store(local.port().into(), Ordering::Relaxed);
        words.watchers.fetch_or(BY_MESSAGES, Ordering::SeqCst);
        words.watchers.fetch_and(!GIVEN_UP, Ordering::SeqCst);
        words.waiters.store(0, Ordering::SeqCst);
        let tail = words.head.load(Ordering::Relaxed);
        words.tail.store(tail, Ordering::Release);
        Self { tail, sent: words.read.load(Ordering::Relaxed), waiting: VecDeque::new() }
    }

    /// How many wait there, if the program's word for it can be; what it has taken is forgotten.
    fn look(&mut self, head: u32) -> Option<usize> {
        let waiting = self.tail.wrapping_sub(head) as usize;
        let taken = self.waiting.len().checked_sub(waiting)?;
        self.waiting.drain(..taken);
        Some(waiting)
    }

    /// Puts a connection in, with what a message about it would say; or gives that back, for a message is to be sent.
    ///
    /// # Errors
    /// Somebody waits in the kernel, there is no room, or a message is unread.
    pub fn put(&mut self, words: &AcceptQueue, block: u32, message: T) -> Result<(), T> {
        let has_room =
            self.look(words.head.load(Ordering::Acquire)).is_some_and(|waiting| waiting < ROOM as usize);
        let is_all_read = words.read.load(Ordering::Acquire) == self.sent;
        if !has_room || !is_all_read || self.is_watched(words) {
            return Err(message);
        }
        words.blocks[(self.tail % ROOM) as usize].store(block.wrapping_add(1), Ordering::Relaxed);
        self.waiting.push_back(message);
        self.tail = self.tail.wrapping_add(1);
        words.tail.store(self.tail, Ordering::SeqCst);
        order_for_models();
        Ok(())
    }

    /// Whether somebody waits in the kernel, so that what is in the words is to be taken back.
    pub fn is_watched(&self, words: &AcceptQueue) -> bool {
        words.watchers.load(Ordering::SeqCst) != 0
    }

    /// Takes back all that wait, in their order, to send messages about them. In one step: who stops waiting meanwhile does not find the
    /// later ones here before he reads of the earlier ones.
    pub fn take_back(&mut self, words: &AcceptQueue) -> VecDeque<T> {
        // A program that takes them at the same time has them; one that only says so is not waited for.
        for _ in 0..=ROOM {
            let head = words.head.load(Ordering::Acquire);
            if self.look(head).is_none_or(|waiting| waiting == 0) {
                break;
            }
            if words.moves(head, self.tail) {
                return mem::take(&mut self.waiting);
            }
        }
        VecDeque::new()
    }

    /// How many of those that were put in nobody has taken, and how many messages that were sent nobody has said that he has read.
    pub fn on_the_way(&mut self, words: &AcceptQueue) -> [usize; 2] {
        let waiting = self.look(words.head.load(Ordering::Acquire)).unwrap_or(0);
        // Who says that he has read more than there was harms his own.
        let unread = self.sent.wrapping_sub(words.read.load(Ordering::Acquire)).cast_signed().max(0);
        [waiting, unread.cast_unsigned() as usize]
    }

    /// A message was sent.
    pub fn note_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }
}

impl Default for AcceptQueue {
    fn default() -> Self {
        let words = [0; ROOM as usize];
        Self {
            blocks: words.map(AtomicU32::new),
            tail: AtomicU32::new(0),
            _apart: 0,
            address: [0; 2].map(AtomicU64::new),
            _rest_of_line: [0; 5],
            head: AtomicU32::new(0),
            watchers: AtomicU32::new(0),
            read: AtomicU32::new(0),
            port: AtomicU32::new(0),
            waiters: AtomicU64::new(0),
            _rest: [0; 2],
            _generation: AtomicU64::new(0),
            _end: [0; 3],
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::mpsc;

    const AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);

    fn opened() -> (AcceptQueue, Feeder<u32>) {
        let words = AcceptQueue::default();
        let feeder = Feeder::begin(&words, AT);
        words.begin();
        (words, feeder)
    }

    #[test]
    fn nobody_who_has_not_said_that_he_looks_finds_anything() {
        let words = AcceptQueue::default();
        let mut feeder = Feeder::begin(&words, AT);
        assert_eq!(feeder.put(&words, 3, 3), Err(3));
        words.begin();
        assert_eq!(feeder.put(&words, 3, 3), Ok(()));
        assert_eq!((words.take(), words.take()), (Some(3), None));
    }

    #[test]
    fn what_was_put_in_before_somebody_waits_is_taken_back_or_found() {
        let (words, mut feeder) = opened();
        assert_eq!(feeder.put(&words, 1, 10), Ok(()));
        words.watch();
        assert!(!words.is_empty() && feeder.is_watched(&words));
        assert_eq!((feeder.take_back(&words), feeder.take_back(&words).len()), (VecDeque::from([10]), 0));
        assert_eq!((words.take(), feeder.put(&words, 2, 20)), (None, Err(20)));
        words.unwatch();
        assert_eq!((feeder.put(&words, 2, 20), words.take()), (Ok(()), Some(2)));
    }

    #[test]
    fn who_stops_waiting_finds_nothing_before_what_was_taken_back() {
        let (words, mut feeder) = opened();
        (1..=3).for_each(|block| feeder.put(&words, block, block).unwrap());
        words.watch();
        assert_eq!(feeder.take_back(&words), [1, 2, 3]);
        feeder.note_sent();
        words.unwatch();
        assert_eq!((words.take(), feeder.put(&words, 4, 4)), (None, Err(4)));
    }

    #[test]
    fn a_message_that_is_unread_has_none_put_in_behind_it() {
        let (words, mut feeder) = opened();
        for block in 0..ROOM {
            assert_eq!(feeder.put(&words, block, block), Ok(()));
        }
        assert_eq!(feeder.put(&words, ROOM, ROOM), Err(ROOM), "there is no room");
        feeder.note_sent();
        assert_eq!(words.take(), Some(0));
        assert_eq!(feeder.put(&words, ROOM + 1, ROOM + 1), Err(ROOM + 1), "another came before");
        words.note_read();
        assert_eq!(feeder.put(&words, ROOM + 1, ROOM + 1), Ok(()));
    }

    #[test]
    fn it_is_known_how_many_are_on_the_way() {
        let (words, mut feeder) = opened();
        (0..3).for_each(|block| feeder.put(&words, block, block).unwrap());
        assert_eq!((feeder.on_the_way(&words), words.take()), ([3, 0], Some(0)));
        assert_eq!((feeder.on_the_way(&words), feeder.take_back(&words).len()), ([2, 0], 2));
        (0..2).for_each(|_| feeder.note_sent());
        for unread in [2, 1, 0, 0] {
            assert_eq!(feeder.on_the_way(&words), [0, unread]);
            words.note_read();
        }
    }

    #[test]
    fn an_earlier_listeners_words_begin_empty_and_with_messages() {
        let (words, mut feeder) = opened();
        (0..3).for_each(|block| feeder.put(&words, block, block).unwrap());
        feeder.note_sent();
        assert_eq!(words.take(), Some(0));
        assert_eq!(words.local(), AT);
        let elsewhere = "[fd00::1]:443".parse().unwrap();
        let mut next = Feeder::begin(&words, elsewhere);
        assert_eq!((words.take(), next.put(&words, 7, 7)), (None, Err(7)));
        words.begin();
        assert_eq!((next.put(&words, 7, 7), words.take()), (Ok(()), Some(7)));
        assert_eq!((words.local(), words.port()), (elsewhere, 443));
    }

    #[test]
    fn what_a_listener_has_given_up_serves_the_next_one() {
        let (words, mut feeder) = opened();
        assert_eq!(feeder.put(&words, 1, 10), Ok(()));
        words.give_up();
        assert!(feeder.is_watched(&words) && words.is_unwatched());
        assert_eq!((feeder.take_back(&words), feeder.put(&words, 2, 20)), (VecDeque::from([10]), Err(20)));
        // Another process that has the listener finds no way back.
        words.begin();
        assert_eq!(feeder.put(&words, 2, 20), Err(20));
        let mut next = Feeder::begin(&words, AT);
        words.begin();
        assert_eq!((next.put(&words, 3, 30), words.take()), (Ok(()), Some(3)));
        words.watch();
        assert!(!words.is_unwatched());
    }

    proptest! {
        /// Against a list: in order, each once, also past the cursors' wrap.
        #[test]
        fn law_each_is_taken_once_and_in_order(from in any::<u32>(), steps in proptest::collection::vec(0..5_u8, 1..300)) {
            let words = AcceptQueue::default();
            words.head.store(from, Ordering::Relaxed);
            let mut feeder = Feeder::begin(&words, AT);
            words.begin();
            let (mut model, mut next, mut watchers) = (VecDeque::new(), 0, 0_u32);
            for step in steps {
                match step {
                    0 | 1 => {
                        let fits = model.len() < ROOM as usize && watchers == 0;
                        prop_assert_eq!(feeder.put(&words, next, next).is_ok(), fits);
                        if fits {
                            model.push_back(next);
                        }
                        next += 1;
                    }
                    2 => prop_assert_eq!(words.take(), model.pop_front()),
                    3 => prop_assert_eq!(feeder.take_back(&words), std::mem::take(&mut model)),
                    _ if watchers > 0 => {
                        words.unwatch();
                        watchers -= 1;
                    }
                    _ => {
                        words.watch();
                        watchers += 1;
                    }
                }
                prop_assert_eq!(words.is_empty(), model.is_empty());
            }
        }

        /// Whatever a program writes there, the daemon gives out nothing twice and nothing that it did not put in, and always ends.
        #[test]
        fn law_a_program_that_scribbles_harms_itself(lies in proptest::collection::vec((0..4_u8, any::<u32>()), 1..100)) {
            let (words, mut feeder) = opened();
            let mut out = Vec::new();
            for (nth, (what, lie)) in (0_u32..).zip(lies) {
                match what {
                    0 => words.head.store(lie, Ordering::Relaxed),
                    1 => words.head.store(feeder.tail.wrapping_sub(lie % 40), Ordering::Relaxed),
                    2 => words.read.store(lie % 2, Ordering::Relaxed),
                    _ => words.blocks[(lie % ROOM) as usize].store(lie, Ordering::Relaxed),
                }
                if let Err(message) = feeder.put(&words, nth, nth) {
                    out.push(message);
                }
                let back = feeder.take_back(&words);
                out.extend(back.into_iter().filter(|_| lie % 3 == 0));
                prop_assert!(feeder.waiting.len() <= ROOM as usize);
            }
            out.sort_unstable();
            prop_assert!(out.windows(2).all(|two| two[0] != two[1]));
        }
    }

    /// Threads take, and now and then wait in the kernel, of which a channel stands for the descriptor. Every one is had by one of
    /// them.
    #[test]
    fn stress_each_is_had_by_one_whoever_waits() {
        const COUNT: u32 = 40_000;
        let (words, mut feeder) = opened();
        let (send, receive) = mpsc::channel::<u32>();
        let receive = std::sync::Mutex::new(receive);
        let (had, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let all = std::sync::Mutex::new(vec![0_u8; COUNT as usize]);
        let (words, receive, had, is_over, all) = (&words, &receive, &had, &is_over, &all);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(move || {
                    let have = |block: u32| {
                        all.lock().unwrap()[block as usize] += 1;
                        had.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    };
                    while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                        if let Some(block) = words.take() {
                            have(block);
                            continue;
                        }
                        words.watch();
                        if let Some(block) = words.take() {
                            have(block);
                        } else {
                            let wait = std::time::Duration::from_millis(20);
                            let message = receive.lock().unwrap().recv_timeout(wait);
                            if let Ok(block) = message {
                                words.note_read();
                                have(block);
                            }
                        }
                        words.unwatch();
                    }
                });
            }
            for block in 0..COUNT {
                let tell = |feeder: &mut Feeder<u32>, block| {
                    feeder.note_sent();
                    send.send(block).unwrap();
                };
                match feeder.put(words, block, block) {
                    Err(block) => tell(&mut feeder, block),
                    Ok(()) => {
                        if feeder.is_watched(words) {
                            feeder.take_back(words).into_iter().for_each(|block| tell(&mut feeder, block));
                        }
                    }
                }
            }
            let begun = std::time::Instant::now();
            while had.load(std::sync::atomic::Ordering::SeqCst) < COUNT as usize
                && begun.elapsed().as_secs() < 30
            {
                std::thread::yield_now();
            }
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        assert!(all.lock().unwrap().iter().all(|&count| count == 1));
    }
}
