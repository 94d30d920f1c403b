//! What `{:?}` shows of handles: one short line, as std's show theirs.
//!
//! A handle leads to the whole engine, and the engine back to every socket that somebody waits at: derived, the text would have the
//! secrets of the engine in it and no end. So nothing here looks further than the handle's own names. Whoever wants to know more asks
//! ([`Engine::snapshot`], [`Engine::sockets`]).

use std::fmt::{Debug, Formatter, Result};
use std::io;

use crate::capture::Capture;
use crate::echo_socket::EchoSocket;
use crate::engine::{Engine, EngineConfig, Inner};
use crate::fabric::Fabric;
use crate::poller::Poller;
use crate::programs::{Closer, Hub};
use crate::queue::Queue;
use crate::stack::{Stack, StackBuilder};
use crate::tcp_listener::TcpListener;
use crate::tcp_stream::TcpStream;
use crate::udp_socket::UdpSocket;
use crate::watch::{StepMeter, Trace};
use crate::worker::Worker;

/// What is there and is nobody's to read.
struct Hidden;

impl Debug for Hidden {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("..")
    }
}

impl Debug for Fabric {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Fabric").field("lanes", &self.lane_count()).finish()
    }
}

impl Debug for Inner {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Engine").field("lanes", &self.fabric.lane_count()).finish()
    }
}

impl Debug for Engine {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.fmt(f)
    }
}

impl Debug for EngineConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("EngineConfig")
            .field("lanes", &self.lanes)
            .field("reserve", &self.reserve)
            .field("cpus", &self.cpus)
            .field("pools", &self.pools)
            .field("threads", &self.threads)
            .field("stable_secret", &self.stable_secret.map(|_| Hidden))
            .field("seed", &self.seed.map(|_| Hidden))
            .finish()
    }
}

impl Debug for Stack {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Stack").field("id", &self.id()).field("engine", &self.inner).finish()
    }
}

impl Debug for StackBuilder {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("StackBuilder").field("engine", self.engine_config()).finish_non_exhaustive()
    }
}

/// A socket by those of its names that it has.
fn socket<T: Debug>(f: &mut Formatter<'_>, kind: &str, names: &[(&str, io::Result<T>)]) -> Result {
    let mut shown = f.debug_struct(kind);
    for (name, value) in names {
        if let Ok(value) = value {
            shown.field(name, value);
        }
    }
    shown.finish()
}

impl Debug for TcpStream {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        socket(f, "TcpStream", &[("addr", self.local_addr()), ("peer", self.peer_addr())])
    }
}

impl Debug for TcpListener {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        socket(f, "TcpListener", &[("addr", self.local_addr())])
    }
}

impl Debug for UdpSocket {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        socket(f, "UdpSocket", &[("addr", self.local_addr()), ("peer", self.peer_addr())])
    }
}

impl Debug for EchoSocket {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        socket(f, "EchoSocket", &[("identifier", self.identifier())])
    }
}

impl Debug for Poller {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Poller").field("watched", &self.watched()).finish()
    }
}

impl Debug for Worker {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Worker").field("lane", &self.lane()).finish()
    }
}

impl Debug for Capture {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl Debug for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Trace").field("frames", &self.frames()).finish()
    }
}

impl Debug for StepMeter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("StepMeter").finish_non_exhaustive()
    }
}

impl Debug for Queue {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let kind = match self {
            Self::Memory(_) => "Memory",
            Self::Tap(_) => "Tap",
            Self::Packet(_) => "Packet",
            Self::Memif(_) => "Memif",
            Self::AfXdp(_) => "AfXdp",
            Self::Shared(_) => "Shared",
        };
        f.debug_tuple(kind).field(&Hidden).finish()
    }
}

impl Debug for Hub {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

impl Debug for Closer {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Closer").finish_non_exhaustive()
    }
}
