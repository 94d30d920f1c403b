//! How an interface is made, and what may be wrong with that.
//!
//! Used by the engine, which has it from the model.

use std::fmt;
use std::io;
use std::path::PathBuf;

use firelane_units::Mtu;

use crate::layout;

/// The longest secret: 24 bytes, of which the last is a zero for the sake of other implementations.
pub const SECRET_BYTES_MAX: usize = 23;
/// More ring pairs than this serve no machine.
pub(crate) const QUEUES_MAX: u16 = 64;
/// The longest path that an address of a Unix socket holds.
const PATH_BYTES_MAX: usize = 107;

/// Which end of the control socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Listens (the original's master).
    Server,
    /// Connects (slave); rings and buffers lie in its memory.
    Client,
}

/// What both ends must know.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Secret(pub(crate) [u8; 24]);

impl Secret {
    /// The secret `text`; `None` if it is empty, longer than [`SECRET_BYTES_MAX`] or has a zero.
    pub fn new(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= SECRET_BYTES_MAX && !text.bytes().any(|b| b == 0);
        let mut bytes = [0; 24];
        for (to, from) in bytes.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        fits.then_some(Self(bytes))
    }

    /// Compares without telling by its time how much was right.
    pub(crate) fn is(&self, other: &[u8; 24]) -> bool {
        self.0.iter().zip(other).fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// How an interface is made.
#[derive(Clone, Debug)]
pub struct MemifConfig {
    /// Which end.
    pub role: Role,
    /// The control socket.
    pub socket: PathBuf,
    /// Which interface of that socket; a server of ours has one.
    pub id: u32,
    /// What both ends must know; without one, permission to open the socket is enough.
    pub secret: Option<Secret>,
    /// Ring pairs, each a driver of its own.
    pub queues: u16,
    /// Descriptors of each ring: a power of two. A client decides; a server takes what the client chose.
    pub ring_size: u16,
    /// Bytes of each buffer. A client decides.
    pub buffer_bytes: u16,
    /// The largest packet.
    pub mtu: Mtu,
    /// The interface's name, as the other end is told.
    pub name: String,
}

impl MemifConfig {
    /// An interface with one ring pair of 1,024 descriptors and buffers of 2 KiB, as DPDK's.
    pub fn new(role: Role, socket: impl Into<PathBuf>) -> Self {
        Self {
            role,
            socket: socket.into(),
            id: 0,
            secret: None,
            queues: 1,
            ring_size: 1024,
            buffer_bytes: 2048,
            mtu: Mtu::ETHERNET,
            name: "firelane".into(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let path = self.socket.as_os_str().len();
        if path == 0 || path > PATH_BYTES_MAX {
            return Err(ConfigError::Path(self.socket.clone()));
        }
        if self.queues == 0 || self.queues > QUEUES_MAX {
            return Err(ConfigError::Queues(self.queues));
        }
        let largest = 1 << layout::LOG2_SIZE_MAX;
        if !self.ring_size.is_power_of_two() || !(2..=largest).contains(&self.ring_size) {
            return Err(ConfigError::RingSize(self.ring_size));
        }
        if self.buffer_bytes < layout::BUFFER_BYTES_MIN {
            return Err(ConfigError::BufferBytes(self.buffer_bytes));
        }
        Ok(())
    }
}

/// Which setting is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The socket's path.
    Path(PathBuf),
    /// The number of ring pairs.
    Queues(u16),
    /// Descriptors per ring.
    RingSize(u16),
    /// Bytes per buffer.
    BufferBytes(u16),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "socket {path:?}: a path of 1 to {PATH_BYTES_MAX} bytes"),
            Self::Queues(count) => write!(f, "queues {count}: 1 to {QUEUES_MAX}"),
            Self::RingSize(size) => {
                write!(f, "ring size {size}: a power of two from 2 to {}", 1u32 << layout::LOG2_SIZE_MAX)
            }
            Self::BufferBytes(bytes) => {
                write!(f, "buffer bytes {bytes}: {} to {}", layout::BUFFER_BYTES_MIN, u16::MAX)
            }
        }
    }
}

/// Why an interface could not be made.
#[derive(Debug)]
pub enum OpenError {
    /// A setting is wrong.
    Config(ConfigError),
    /// Another process listens on the socket.
    InUse(PathBuf),
    /// Something that is no socket has the path.
    NoSocket(PathBuf),
    /// The kernel said no: what was tried, and why.
    System(&'static str, io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::InUse(path) => write!(f, "memif socket {}: another process listens on it", path.display()),
            Self::NoSocket(path) => {
                write!(f, "memif socket {}: a file that is no socket is in the way", path.display())
            }
            Self::System(what, error) => write!(f, "memif: {what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System(_, error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConfigError> for OpenError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_limits() {
        let good = MemifConfig::new(Role::Server, "/run/x");
        assert_eq!(good.check(), Ok(()));
        for ring_size in [0, 1, 3, 1000, 32_768] {
            let bad = MemifConfig { ring_size, ..good.clone() };
            assert_eq!(bad.check(), Err(ConfigError::RingSize(ring_size)));
        }
        for queues in [0, 65] {
            assert_eq!(MemifConfig { queues, ..good.clone() }.check(), Err(ConfigError::Queues(queues)));
        }
        assert!(MemifConfig { buffer_bytes: 63, ..good.clone() }.check().is_err());
        assert!(MemifConfig { socket: "/x".repeat(60).into(), ..good }.check().is_err());
    }

    #[test]
    fn secrets_fit_the_message() {
        assert!(Secret::new("").is_none() && Secret::new(&"s".repeat(24)).is_none());
        let secret = Secret::new("open sesame").unwrap();
        assert!(secret.is(&secret.0) && !secret.is(&[0; 24]));
    }
}
