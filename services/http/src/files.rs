//! Which file a request's target names: one below the served folder, or none.
//!
//! Called by `connection.rs`. Symbolic links are followed only if they stay inside: the path is resolved
//! first and compared afterwards.

use std::io;
use std::path::{Path, PathBuf};

use crate::part;
use crate::request::Range;
use crate::response::Status;

/// The folder that is served.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    /// The files below `root`, which is created if it does not exist. What a process has left there that was killed while it
    /// received is removed.
    ///
    /// # Errors
    /// The folder cannot be created or resolved.
    pub fn new(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        let root = root.canonicalize()?;
        part::remove_abandoned(&root);
        Ok(Self { root })
    }

    /// The existing file that `target` names; a folder means its `index.html`.
    pub(crate) fn existing(&self, target: &str) -> Result<PathBuf, Status> {
        let mut path = self.root.join(relative(target)?);
        if path.is_dir() {
            path.push("index.html");
        }
        let path = path.canonicalize().map_err(|_| Status::NotFound)?;
        if !path.starts_with(&self.root) {
            return Err(Status::Forbidden);
        }
        let is_part = path.file_name().is_some_and(part::is_part);
        if path.is_file() && !is_part { Ok(path) } else { Err(Status::NotFound) }
    }

    /// Where the file that `target` names is to be stored. Its folder must exist.
    pub(crate) fn storable(&self, target: &str) -> Result<PathBuf, Status> {
        let relative = relative(target)?;
        let name = relative.file_name().ok_or(Status::Forbidden)?;
        let folder = self.root.join(&relative).parent().map(Path::to_owned).ok_or(Status::Forbidden)?;
        let folder = folder.canonicalize().map_err(|_| Status::NotFound)?;
        let path = folder.join(name);
        if !folder.starts_with(&self.root) || path.is_symlink() || path.is_dir() || part::is_part(name) {
            return Err(Status::Forbidden);
        }
        Ok(path)
    }
}

/// The path in `target`, decoded, without its query, and without any step upwards.
fn relative(target: &str) -> Result<PathBuf, Status> {
    let path = origin_form(target).ok_or(Status::BadRequest)?.split(['?', '#']).next().unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or_default();
    let decoded = percent_decoded(path).ok_or(Status::BadRequest)?;
    if decoded.contains('\0') || decoded.split('/').any(|part| part == "..") || decoded.starts_with('/') {
        return Err(Status::Forbidden);
    }
    Ok(PathBuf::from(decoded))
}

/// A target from its path on: as hosts ask, or with scheme and host before it, as proxies are asked (RFC 9112 §3.2.2).
fn origin_form(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return Some(target);
    }
    let (scheme, rest) = target.split_once("://")?;
    let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (scheme.eq_ignore_ascii_case("http") && host > 0).then(|| &rest[host..])
}

/// RFC 3986 §2.1.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).ok()
}

/// The part of `length` bytes that `range` asks for: first position and count.
pub(crate) fn part(range: Range, length: u64) -> Result<(u64, u64), Status> {
    let (first, last) = match range {
        Range::From { first, last } => (first, last.unwrap_or(u64::MAX).min(length.saturating_sub(1))),
        Range::Last(count) => (length.saturating_sub(count), length.saturating_sub(1)),
    };
    let empty_suffix = range == Range::Last(0);
    if length == 0 || first >= length || empty_suffix {
        return Err(Status::RangeNotSatisfiable);
    }
    Ok((first, last - first + 1))
}

/// The media type that a file's name suggests.
pub(crate) fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|e| e.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("firelane-http-{}-{name}", std::process::id()));
        std::fs::create_dir_all(folder.join("root/sub")).unwrap();
        folder
    }

    #[test]
    fn only_files_below_the_root_are_named() {
        let outer = folder("below");
        std::fs::write(outer.join("root/sub/a b.txt"), "x").unwrap();
        std::fs::write(outer.join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(outer.join("secret"), outer.join("root/leak")).unwrap();
        let files = Files::new(&outer.join("root")).unwrap();
        assert!(files.existing("/sub/a%20b.txt?query").is_ok());
        assert!(files.existing("http://x/sub/a%20b.txt?query").is_ok(), "as who asks by a proxy says it");
        for (target, status) in [
            ("/../secret", Status::Forbidden),
            ("/%2e%2e/secret", Status::Forbidden),
            ("/leak", Status::Forbidden),
            ("//etc/passwd", Status::Forbidden),
            ("/none", Status::NotFound),
            ("/sub", Status::NotFound),
            ("secret", Status::BadRequest),
            ("/%zz", Status::BadRequest),
            ("http://x/../secret", Status::Forbidden),
            ("http://x//etc/passwd", Status::Forbidden),
            ("HTTP://x:80?y", Status::NotFound),
            ("http:///sub", Status::BadRequest),
            ("ftp://x/sub", Status::BadRequest),
        ] {
            assert_eq!(files.existing(target), Err(status), "{target}");
        }
        let written = part::Part::create(&outer.join("root")).unwrap();
        let mut names = std::fs::read_dir(outer.join("root")).unwrap().map(|it| it.unwrap().file_name());
        let name = names.find(|name| part::is_part(name)).unwrap().into_string().unwrap();
        assert_eq!(files.existing(&format!("/{name}")), Err(Status::NotFound));
        drop(written);
        for target in ["/leak", "/sub", "/", "/../x", &format!("/{name}")] {
            assert_eq!(files.storable(target), Err(Status::Forbidden), "{target}");
        }
        assert_eq!(files.storable("/none/x"), Err(Status::NotFound));
        assert!(files.storable("/sub/new").is_ok());
        std::fs::remove_dir_all(outer).unwrap();
    }

    #[test]
    fn parts() {
        let from = |first, last| Range::From { first, last };
        for (range, length, expected) in [
            (from(0, None), 10, Ok((0, 10))),
            (from(5, Some(7)), 10, Ok((5, 3))),
            (from(5, Some(99)), 10, Ok((5, 5))),
            (from(10, None), 10, Err(Status::RangeNotSatisfiable)),
            (Range::Last(3), 10, Ok((7, 3))),
            (Range::Last(30), 10, Ok((0, 10))),
            (Range::Last(0), 10, Err(Status::RangeNotSatisfiable)),
            (from(0, None), 0, Err(Status::RangeNotSatisfiable)),
        ] {
            assert_eq!(part(range, length), expected, "{range:?} of {length}");
        }
    }
}
