//! Domain names in options (RFC 1035 §4.1.4, RFC 3397, RFC 3646): labels, and references backwards.
//!
//! Used by the leases of both clients. A server's names end in files and commands of the host, so only letters,
//! digits, `-`, `_` and dots pass (CVE-2011-0997).

/// The longest name, in characters (RFC 1035 §2.3.4).
const NAME_MAX: usize = 253;
/// The longest label.
const LABEL_MAX: usize = 63;
/// Names of one list.
const NAMES_MAX: usize = 16;

/// Whether `text` is a name of a host or domain.
pub(crate) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_sane = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.len() <= LABEL_MAX && !label.starts_with('-') && label.chars().all(is_sane)
    };
    text.len() <= NAME_MAX && text.split('.').all(is_label)
}

/// The names of a list, or nothing if any of it cannot be read.
pub(crate) fn read_list(bytes: &[u8]) -> Option<Vec<String>> {
    let (mut names, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if names.len() == NAMES_MAX {
            return None;
        }
        let (name, next) = read_name(bytes, at)?;
        names.push(name);
        at = next;
    }
    Some(names)
}

/// The name at `at`, and where the next one begins.
fn read_name(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let (mut name, mut at, mut next) = (String::new(), at, None);
    loop {
        match *bytes.get(at)? {
            0 => {
                let next = next.unwrap_or(at + 1);
                return is_host_name(&name).then_some((name, next));
            }
            len @ 1..=63 => {
                let label = bytes.get(at + 1..=at + usize::from(len))?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(core::str::from_utf8(label).ok()?);
                if name.len() > NAME_MAX {
                    return None;
                }
                at += 1 + usize::from(len);
            }
            high @ 192.. => {
                let to = usize::from(high & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                next = next.or(Some(at + 2));
                // Only backwards: references alone come to an end, and labels between them end with the longest name.
                if to >= at {
                    return None;
                }
                at = to;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_with_references_or_not_at_all() {
        for (bytes, wanted) in [
            (&b"\x03lab\x03net\0"[..], Some(vec!["lab.net"])),
            (b"\x03lab\x03net\0\x02my\xc0\x04", Some(vec!["lab.net", "my.net"])),
            (b"", Some(vec![])),
            (b"\x03lab", None),
            (b"\xc0\x00", None),
            (b"\x01a\xc0\x00", None),
            (b"\x03a b\0", None),
            (b"\x02-a\0", None),
            (b"\0", None),
            (b"\x41aaaa", None),
        ] {
            let read = read_list(bytes);
            assert_eq!(read, wanted.map(|list| list.into_iter().map(str::to_owned).collect()), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_stand_there(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for name in read_list(&bytes).unwrap_or_default() {
                prop_assert!(is_host_name(&name));
            }
        }
    }
}
