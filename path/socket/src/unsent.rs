//! Writing while little is unsent (`TCP_NOTSENT_LOWAT`).
//!
//! Part of the half that writes (`stream.rs`), called where the lane has set a limit. Who has written as much as the limit is full (R4 of
//! `shared.rs`) until the lane, which the kick for what was written reaches, says otherwise. Who could write nothing has
//! no kick to send: he waits for room as everybody does, and is not full.

use crate::stream::{SendEnd, WriteError};

impl SendEnd {
    /// Writes while less than the limit is unsent. How much of what is unacknowledged was sent is the lane's to say, which
    /// relieves a stream that seems full here.
    #[cold]
    pub(crate) fn write_within(&mut self, bytes: &[u8], limit: usize) -> Result<usize, WriteError> {
        if self.shared().words().is_full() {
            return Err(WriteError::WouldBlock);
        }
        let count = self.ring.write(&bytes[..bytes.len().min(limit)]);
        if count > 0 && self.ring.unread() >= limit {
            self.shared().words().fill();
        }
        if count == 0 && !bytes.is_empty() { Err(WriteError::WouldBlock) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use firelane_units::{LaneId, NetstackId};

    use crate::shared::{Flags, Ready, SocketToken};
    use crate::stream::{StreamConfig, StreamEnd, StreamSlot, WriteError, stream};

    fn limited() -> (StreamEnd, StreamSlot) {
        let (app, lane) =
            stream(StreamConfig { send_capacity: 8, recv_capacity: 8 }, LaneId(1), NetstackId(2));
        lane.shared().words().set_token(SocketToken(7));
        lane.shared().words().set_flags(Flags::CONNECTED);
        lane.shared().words().limit_unsent(Some(4));
        (app, lane)
    }

    #[test]
    fn who_has_written_as_much_as_is_wanted_waits_until_it_is_sent() {
        let (mut app, lane) = limited();
        assert_eq!(app.send.write(b"hello world"), Ok(4));
        assert_eq!(app.send.write(b"o"), Err(WriteError::WouldBlock));
        lane.shared().words().wait_for(Ready::WRITABLE);
        assert_eq!(lane.tell(Ready::WRITABLE), None, "acknowledgments are no news");
        assert!(lane.shared().words().relieve());
        assert_eq!(lane.tell(Ready::WRITABLE), Some(SocketToken(7)));
        assert_eq!(app.send.write(b"o"), Ok(1));
    }

    #[test]
    fn who_finds_no_room_is_told_of_the_next_acknowledgment() {
        let (mut app, mut lane) = limited();
        for _ in 0..2 {
            assert_eq!(app.send.write(b"text"), Ok(4));
            assert!(lane.shared().words().relieve(), "all of it is under way");
        }
        assert_eq!(app.send.write(b"more"), Err(WriteError::WouldBlock));
        lane.shared().words().wait_for(Ready::WRITABLE);
        lane.send.release(8);
        assert_eq!(lane.tell(Ready::WRITABLE), Some(SocketToken(7)));
        assert_eq!(app.send.write(b"more"), Ok(4));
    }
}
