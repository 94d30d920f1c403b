//! Heads of responses (RFC 9112 §4).
//!
//! Called by `connection.rs`. Every response states its length, so a connection can be kept.

use std::fmt::Write;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Ok,
    Created,
    PartialContent,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    PreconditionFailed,
    RangeNotSatisfiable,
    ExpectationFailed,
    HeadTooLarge,
    InternalError,
    NotImplemented,
    VersionNotSupported,
    InsufficientStorage,
}

impl Status {
    /// The status line after the version.
    pub(crate) const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Created => "201 Created",
            Self::PartialContent => "206 Partial Content",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::RequestTimeout => "408 Request Timeout",
            Self::PreconditionFailed => "412 Precondition Failed",
            Self::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Self::ExpectationFailed => "417 Expectation Failed",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::InternalError => "500 Internal Server Error",
            Self::NotImplemented => "501 Not Implemented",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
            Self::InsufficientStorage => "507 Insufficient Storage",
        }
    }
}

/// The interim response that lets a client send its body (RFC 9110 §15.2.1).
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The head of a final response.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    text: String,
}

impl Head {
    pub(crate) fn new(status: Status, length: u64, keep_alive: bool) -> Self {
        let mut head = Self { text: format!("HTTP/1.1 {}\r\n", status.line()) };
        head.field("Content-Length", length);
        head.field("Accept-Ranges", "bytes");
        if status == Status::MethodNotAllowed {
            head.field("Allow", "GET, HEAD, PUT, POST");
        }
        head.field("Connection", if keep_alive { "keep-alive" } else { "close" });
        head
    }

    pub(crate) fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        write!(self.text, "{name}: {value}\r\n").expect("writing to a string cannot fail");
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.text.push_str("\r\n");
        self.text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_states_its_length_and_ends_with_an_empty_line() {
        let mut head = Head::new(Status::PartialContent, 5, true);
        head.field("Content-Range", "bytes 0-4/10");
        let text = String::from_utf8(head.finish()).unwrap();
        assert!(text.starts_with("HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"));
        assert!(text.ends_with("Connection: keep-alive\r\nContent-Range: bytes 0-4/10\r\n\r\n"));
    }
}
