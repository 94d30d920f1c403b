//! What is asked about a program's connection (TCP_INFO, `firelane explain`): what its lane knows, and what its programs have said to each
//! other since. Called by `options.rs` and `shown.rs`.

use std::io;

use firelane_lane::StreamInfo;
use firelane_shm::Block;
use firelane_tcp::{Event, State};
use firelane_units::Bytes;

use super::arena::ProgramArena;
use super::segment::Joined;
use super::stream::Stream;
use crate::fabric::Fabric;

/// A stream and the lanes, for questions about its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    fabric: &'a Fabric,
    stream: &'a Stream,
    block: Option<&'a Block>,
}

impl<'a> Asked<'a> {
    /// About a stream whose words are in this arena.
    pub(super) fn about(fabric: &'a Fabric, stream: &'a Stream, arena: &'a ProgramArena) -> Self {
        Self { fabric, stream, block: arena.mapping().block(stream.number()) }
    }

    /// As `TcpStream::info`.
    pub(super) fn info(self) -> io::Result<StreamInfo> {
        let conn = self.stream.conn().ok_or(io::ErrorKind::NotConnected)?;
        // What is not there to be asked about any more is known to the lane when it is asked.
        let ends = self.ends();
        let mut info = self.fabric.stream_info(self.stream.lane(), conn)?;
        if let Some(joined) = self.stream.joined() {
            let [sent, received] = joined.carried();
            info.tcp.bytes_acknowledged += Bytes(sent);
            info.tcp.bytes_received += Bytes(received);
            info.unread += Bytes(joined.unread());
        }
        info.tcp.state = ends.told(info.tcp.state);
        Ok(info)
    }

    /// Which ends have said that they write no more.
    fn ends(self) -> Ends {
        let joined = self.stream.joined();
        let own = self.block.is_some_and(Block::asks_to_end) || joined.is_some_and(Joined::has_ended);
        Ends { own, peer: joined.is_some_and(Joined::peer_has_ended) }
    }
}

/// Ends of a connection that its programs have said or heard. A lane knows of each a moment later.
#[derive(Clone, Copy, Debug)]
struct Ends {
    own: bool,
    peer: bool,
}

impl Ends {
    /// The connection's state, by the one that its lane knows. The end of both ends a connection, and with it what is told of it: that is
    /// the lane's word alone.
    fn told(self, known: State) -> State {
        let heard = self.peer && known == State::Established;
        let state = known.on(Event::PeerFin).filter(|_| heard).unwrap_or(known);
        let writes = matches!(state, State::Established | State::CloseWait);
        state.on(Event::Close).filter(|_| self.own && writes).unwrap_or(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_programs_have_told_each_other_is_one_though_the_lane_has_not_heard() {
        use State::{CloseWait, Established, FinWait1, FinWait2, LastAck, TimeWait};
        for (known, own, peer, told) in [
            (Established, false, false, Established),
            (Established, true, false, FinWait1),
            (Established, false, true, CloseWait),
            (Established, true, true, LastAck),
            (CloseWait, true, true, LastAck),
            (FinWait1, true, false, FinWait1),
            (FinWait1, true, true, FinWait1),
            (FinWait2, true, true, FinWait2),
            (TimeWait, true, true, TimeWait),
        ] {
            assert_eq!(Ends { own, peer }.told(known), told, "{known:?} {own} {peer}");
        }
    }
}
