//! The bytes of control messages: little-endian fields one after the other, each checked when it is read.
//!
//! Used by `control.rs` alone. Whatever arrives, reading ends in a value or in [`Malformed`], which names the field.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Why a message cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Which field.
    pub field: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl Malformed {
    pub(crate) fn new(field: &'static str, why: impl fmt::Display) -> Self {
        Self { field, why: why.to_string() }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl core::error::Error for Malformed {}

/// A message that is read.
pub(crate) struct In<'a>(pub(crate) &'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| Malformed::new(field, format!("{} bytes are left of {len}", self.0.len())))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(field, N)?);
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(field)?[0])
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn bool(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::new(field, format!("{other} is neither 0 nor 1"))),
        }
    }

    /// A number of at most `most`.
    pub(crate) fn at_most(&mut self, field: &'static str, most: u32) -> Result<u32, Malformed> {
        let value = self.u32(field)?;
        if value > most {
            return Err(Malformed::new(field, format!("{value}: at most {most} is allowed")));
        }
        Ok(value)
    }

    /// Bytes behind their count, of which at most `most` are allowed.
    pub(crate) fn bytes(&mut self, field: &'static str, most: usize) -> Result<Vec<u8>, Malformed> {
        let len = usize::from(self.u16(field)?);
        if len > most {
            return Err(Malformed::new(field, format!("{len} bytes: at most {most} are allowed")));
        }
        Ok(self.take(field, len)?.to_vec())
    }

    pub(crate) fn text(&mut self, field: &'static str, most: usize) -> Result<String, Malformed> {
        String::from_utf8(self.bytes(field, most)?).map_err(|error| Malformed::new(field, error))
    }

    pub(crate) fn ip(&mut self, field: &'static str) -> Result<IpAddr, Malformed> {
        match self.u8(field)? {
            4 => Ok(IpAddr::V4(Ipv4Addr::from(self.array::<4>(field)?))),
            6 => Ok(IpAddr::V6(Ipv6Addr::from(self.array::<16>(field)?))),
            other => Err(Malformed::new(field, format!("{other} is neither 4 nor 6"))),
        }
    }

    pub(crate) fn address(&mut self, field: &'static str) -> Result<SocketAddr, Malformed> {
        let ip = self.ip(field)?;
        let mut address = SocketAddr::new(ip, self.u16(field)?);
        if let SocketAddr::V6(v6) = &mut address {
            v6.set_flowinfo(self.u32(field)?);
            v6.set_scope_id(self.u32(field)?);
        }
        Ok(address)
    }

    pub(crate) fn optional<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.bool(field)? { read(self).map(Some) } else { Ok(None) }
    }

    /// Up to `most` values behind their count.
    pub(crate) fn list<T>(
        &mut self,
        field: &'static str,
        most: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = usize::from(self.u16(field)?);
        if len > most {
            return Err(Malformed::new(field, format!("{len}: at most {most} are allowed")));
        }
        (0..len).map(|_| read(self)).collect()
    }

    /// Nothing may be left.
    pub(crate) fn end<T>(self, value: T) -> Result<T, Malformed> {
        match self.0.len() {
            0 => Ok(value),
            len => Err(Malformed::new("message", format!("{len} bytes too many"))),
        }
    }
}

/// A message that is written.
#[derive(Default)]
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.u32(value.cast_unsigned())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(value.into())
    }

    /// Bytes behind their count; what is beyond `most` is cut off.
    pub(crate) fn bytes(&mut self, value: &[u8], most: usize) -> &mut Self {
        let value = &value[..value.len().min(most)];
        self.u16(value.len() as u16).0.extend_from_slice(value);
        self
    }

    /// Text, cut between characters.
    pub(crate) fn text(&mut self, value: &str, most: usize) -> &mut Self {
        self.bytes(&value.as_bytes()[..value.floor_char_boundary(most)], most)
    }

    pub(crate) fn ip(&mut self, value: IpAddr) -> &mut Self {
        match value {
            IpAddr::V4(ip) => self.u8(4).0.extend(ip.octets()),
            IpAddr::V6(ip) => self.u8(6).0.extend(ip.octets()),
        }
        self
    }

    pub(crate) fn address(&mut self, value: SocketAddr) -> &mut Self {
        self.ip(value.ip()).u16(value.port());
        if let SocketAddr::V6(v6) = value {
            self.u32(v6.flowinfo()).u32(v6.scope_id());
        }
        self
    }

    pub(crate) fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    /// Values behind their count; what is beyond `most` is left out.
    pub(crate) fn list<T>(
        &mut self,
        values: &[T],
        most: usize,
        mut write: impl FnMut(&mut Self, &T),
    ) -> &mut Self {
        let values = &values[..values.len().min(most)];
        self.u16(values.len() as u16);
        values.iter().for_each(|value| write(self, value));
        self
    }
}
