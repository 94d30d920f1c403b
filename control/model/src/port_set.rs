//! A set of ports, as the value of a protocol property: `2049,4045`.
//!
//! Part of `property.rs`' values, which are small and copied.

use core::fmt;

use crate::FieldError;
use crate::property::PropertyError;

/// Ports, each once, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSet {
    ports: [u16; Self::MAX],
    len: u8,
}

impl PortSet {
    /// How many there may be, as in the original.
    pub const MAX: usize = 64;
    /// No port.
    pub const NONE: Self = Self { ports: [0; Self::MAX], len: 0 };

    /// The ports.
    pub fn as_slice(&self) -> &[u16] {
        &self.ports[..usize::from(self.len)]
    }

    /// Reads numbers with commas between; nothing is no port.
    pub(crate) fn read(name: &str, text: &str) -> Result<Self, PropertyError> {
        let mut set = Self::NONE;
        for word in text.split(',').filter(|_| !text.is_empty()) {
            set.insert(name, read_port(name, word)?)?;
        }
        Ok(set)
    }

    /// The set with more ports.
    pub(crate) fn with(mut self, name: &str, more: &Self) -> Result<Self, PropertyError> {
        for port in more.as_slice() {
            if self.as_slice().contains(port) {
                let error = FieldError::new(name, port, "a port that is not there already");
                return Err(PropertyError::Malformed(error));
            }
            self.insert(name, *port)?;
        }
        Ok(self)
    }

    /// The set with fewer ports.
    pub(crate) fn without(self, name: &str, fewer: &Self) -> Result<Self, PropertyError> {
        if let Some(port) = fewer.as_slice().iter().find(|port| !self.as_slice().contains(port)) {
            let there = if self.len == 0 { "nothing: there is none".to_owned() } else { self.to_string() };
            return Err(PropertyError::Malformed(FieldError::new(name, port, there)));
        }
        let mut left = Self::NONE;
        for port in self.as_slice().iter().filter(|port| !fewer.as_slice().contains(port)) {
            left.insert(name, *port)?;
        }
        Ok(left)
    }

    fn insert(&mut self, name: &str, port: u16) -> Result<(), PropertyError> {
        let len = usize::from(self.len);
        let Err(at) = self.as_slice().binary_search(&port) else { return Ok(()) };
        if len == Self::MAX {
            let allowed = format!("at most {} ports", Self::MAX);
            return Err(PropertyError::OutOfRange(FieldError::new(name, port, allowed)));
        }
        self.ports.copy_within(at..len, at + 1);
        self.ports[at] = port;
        self.len += 1;
        Ok(())
    }
}

fn read_port(name: &str, word: &str) -> Result<u16, PropertyError> {
    let field = || FieldError::new(name, word, "1-65535");
    let number = word.parse::<u64>().map_err(|_| PropertyError::Malformed(field()))?;
    u16::try_from(number).ok().filter(|&port| port > 0).ok_or_else(|| PropertyError::OutOfRange(field()))
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.as_slice().iter().map(ToString::to_string).collect();
        f.write_str(&words.join(","))
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> PortSet {
        PortSet::read("p", text).unwrap()
    }

    #[test]
    fn ports_are_read_in_any_order_and_each_is_there_once() {
        for (text, wanted) in [("", ""), ("4045", "4045"), ("4045,2049,4045,1", "1,2049,4045")] {
            assert_eq!(set(text).to_string(), wanted);
        }
        for bad in [",", "1,", "nfs", "-1", "1 2"] {
            assert!(matches!(PortSet::read("p", bad), Err(PropertyError::Malformed(_))), "{bad}");
        }
        for bad in ["0", "65536", "1,99999999999"] {
            assert!(matches!(PortSet::read("p", bad), Err(PropertyError::OutOfRange(_))), "{bad}");
        }
        let many: Vec<_> = (1..=65).map(|port: u16| port.to_string()).collect();
        assert_eq!(set(&many[..64].join(",")).as_slice().len(), 64);
        assert!(matches!(PortSet::read("p", &many.join(",")), Err(PropertyError::OutOfRange(_))));
    }

    #[test]
    fn what_is_added_must_be_new_and_what_is_taken_must_be_there() {
        let there = set("2049,4045");
        assert_eq!(there.with("p", &set("99,5000")).unwrap(), set("99,2049,4045,5000"));
        assert_eq!(there.without("p", &set("2049")).unwrap(), set("4045"));
        assert_eq!(there.without("p", &there).unwrap(), PortSet::NONE);
        let allowed = |done: Result<PortSet, PropertyError>| done.unwrap_err().into_field().allowed;
        assert_eq!(allowed(there.with("p", &set("99,4045"))), "a port that is not there already");
        assert_eq!(allowed(there.without("p", &set("99"))), "2049,4045");
        assert_eq!(allowed(PortSet::NONE.without("p", &set("99"))), "nothing: there is none");
    }
}
