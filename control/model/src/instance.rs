//! Which Firelane this is, so that several daemons on one host keep out of each other's way.
//!
//! The file says `namespace = "alice"`; the kernel has one name space of namespaces for the whole host.
//! The daemon's `--instance` tells two runs of the same file apart.

use core::fmt;
use core::str::FromStr;

use crate::{NameError, NamespaceName};

/// The daemon's instance: empty for the host's only one, else a short word.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instance(Option<NamespaceName>);

impl Instance {
    /// What is allowed, as one line.
    pub const ALLOWED: &'static str =
        "an instance is empty or has at most 31 letters, digits, _, - or . and starts with a letter";

    /// The kernel's name of the namespace that the model calls `namespace`.
    pub fn namespace(&self, namespace: &NamespaceName) -> String {
        match &self.0 {
            None => namespace.to_string(),
            Some(instance) => format!("{instance}-{namespace}"),
        }
    }

    /// Whether this is the host's only one.
    pub fn is_default(&self) -> bool {
        self.0.is_none()
    }
}

impl FromStr for Instance {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        text.parse().map(|name| Self(Some(name))).map_err(|_| NameError(Self::ALLOWED))
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.as_ref().map_or("", NamespaceName::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_instances_of_one_file_use_different_namespaces() {
        let alice: NamespaceName = "alice".parse().unwrap();
        let name = |text: &str| text.parse::<Instance>().unwrap().namespace(&alice);
        assert_eq!(name(""), "alice");
        assert_eq!(name("demo7"), "demo7-alice");
        assert!("../x".parse::<Instance>().is_err());
    }
}
