//! A pool: a set of networks that rules name by number, `pool/13`.

use core::fmt;

use firelane_units::IpPrefix;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::{self, TextValue, serde_as_text};

/// What a pool is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolNumber(pub u32);

impl fmt::Display for PoolNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TextValue for PoolNumber {
    const ALLOWED: &'static str = "a pool is a number from 0 to 4294967295";

    fn read(text: &str) -> Option<Self> {
        super::read::decimal(text).map(Self)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

serde_as_text!(PoolNumber);

/// The networks of a pool: sorted, without host bits, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pool(Vec<IpPrefix>);

impl Pool {
    /// The pool of these networks.
    pub fn new(networks: impl IntoIterator<Item = IpPrefix>) -> Self {
        let mut networks: Vec<_> = networks.into_iter().map(IpPrefix::network).collect();
        networks.sort_unstable();
        networks.dedup();
        Self(networks)
    }

    /// Its networks, sorted.
    pub fn networks(&self) -> &[IpPrefix] {
        &self.0
    }
}

impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        value::list::serialize(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        value::list::deserialize::<IpPrefix, D>(from).map(Self::new)
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for Pool {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        Vec::<String>::schema()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for Pool {}
