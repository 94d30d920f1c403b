//! A listener's block, where its connections wait for its program (`firelane_shm::AcceptQueue`).
//!
//! Made when a socket becomes a listener (`socket.rs`), fed by whoever hands connections on (`handing.rs`).

use core::net::SocketAddr;
use std::sync::Arc;

use firelane_frame::ArenaPair;
use firelane_shm::control::Place;
use firelane_shm::{AcceptQueue, Feeder};

use super::arena::ProgramArena;

/// The block. It goes back when the listener does.
#[derive(Debug)]
pub(super) struct Waiting {
    arena: Arc<ProgramArena>,
    block: Option<ArenaPair>,
}

impl Waiting {
    /// For a listener of the arena; none if there is no block, and then everything is told by messages.
    pub(super) fn new(arena: &Arc<ProgramArena>) -> Option<Self> {
        Some(Self { arena: Arc::clone(arena), block: Some(arena.take_queue()?) })
    }

    /// The words.
    pub(super) fn words(&self) -> Option<&AcceptQueue> {
        self.arena.mapping().accept_queue(self.block.as_ref()?.block())
    }

    /// Where they are.
    pub(super) fn place(&self) -> Option<Place> {
        let block = self.block.as_ref()?.block();
        Some(Place { arena: self.arena.arena().number(), block })
    }

    /// Tells the waiters who are marked there that something has arrived.
    pub(super) fn tell(&self) {
        if let (Some(block), Some(words)) = (&self.block, self.words()) {
            self.arena.tell_marked(words.waiters(), block.block());
        }
    }

    /// What puts connections of a listener at this address there, from an empty queue on.
    pub(super) fn feeder<T>(&self, local: SocketAddr) -> Option<Feeder<T>> {
        self.words().map(|words| Feeder::begin(words, local))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.arena.give_queue(block);
        }
    }
}
