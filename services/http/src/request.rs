//! The head of a request (RFC 9112 §3), read from a buffer that grows until the head is whole.
//!
//! Called by `connection.rs`. What the head says about the body is a sum, so that a length and chunks can
//! never both be believed (request smuggling, RFC 9112 §6.3).

use crate::response::Status;

/// The longest head that is read.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// What a client may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Get,
    Head,
    Store,
}

/// How long the body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyLength {
    Known(u64),
    Chunked,
}

/// One range of bytes, as asked for (RFC 9110 §14.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Range {
    From { first: u64, last: Option<u64> },
    Last(u64),
}

/// What must hold before something is stored (RFC 9110 §13.1). Files have no tags here, so that none of a client's is that of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    Exists,
    IsAbsent,
    NeverHolds,
}

impl Condition {
    /// Whether it holds for a file that is there, or is not.
    pub(crate) fn holds(self, exists: bool) -> bool {
        match self {
            Self::Exists => exists,
            Self::IsAbsent => !exists,
            Self::NeverHolds => false,
        }
    }
}

/// A request without its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) body: BodyLength,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) range: Option<Range>,
    pub(crate) condition: Option<Condition>,
}

/// Reads a head from the front of `bytes`. `None` if it is not yet whole; else the request and the length
/// of its head.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Status> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Status::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Status::VersionNotSupported),
        Err(_) => return Err(Status::BadRequest),
    };
    let method = match head.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("PUT" | "POST") => Method::Store,
        _ => return Err(Status::MethodNotAllowed),
    };
    let is_1_1 = head.version == Some(1);
    let fields = Fields::read(head.headers)?;
    if is_1_1 && fields.hosts != 1 {
        // RFC 9112 §3.2: a request without exactly one Host field is answered with 400.
        return Err(Status::BadRequest);
    }
    if method == Method::Store && fields.is_part {
        // RFC 9110 §14.5: it would take the place of the whole.
        return Err(Status::BadRequest);
    }
    let body = fields.body()?;
    let request = Request {
        method,
        target: head.path.unwrap_or_default().to_owned(),
        body,
        // RFC 9112 §6.1: a proxy that knows HTTP/1.0 alone has seen another end of a body of chunks.
        keep_alive: fields.connection.unwrap_or(is_1_1) && (is_1_1 || !fields.chunked),
        // RFC 9110 §10.1.1: one of HTTP/1.0 would take it for the answer, and who sends no body does not wait.
        expects_continue: fields.expects_continue && is_1_1 && body != BodyLength::Known(0),
        // RFC 9110 §14.2: it is defined for GET alone. §13.1.5: nobody has been told what he could compare with.
        range: fields.range.filter(|_| method == Method::Get && !fields.has_if_range),
        condition: fields.condition,
    };
    Ok(Some((request, length)))
}

/// The header fields that matter here.
struct Fields {
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
    /// Whether the client wants to keep the connection, if it says so.
    connection: Option<bool>,
    expects_continue: bool,
    range: Option<Range>,
    has_if_range: bool,
    /// The body is a part of a file.
    is_part: bool,
    condition: Option<Condition>,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>]) -> Result<Self, Status> {
        let mut fields = Self {
            hosts: 0,
            length: None,
            chunked: false,
            connection: None,
            expects_continue: false,
            range: None,
            has_if_range: false,
            is_part: false,
            condition: None,
        };
        for header in headers {
            let value = std::str::from_utf8(header.value).map_err(|_| Status::BadRequest)?;
            fields.take(header.name, trimmed(value))?;
        }
        Ok(fields)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), Status> {
        if name.eq_ignore_ascii_case("host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case("content-length") {
            let length = decimal(value).ok_or(Status::BadRequest)?;
            if self.length.replace(length).is_some_and(|earlier| earlier != length) {
                return Err(Status::BadRequest);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(Status::NotImplemented);
            }
            // Twice chunked is one coding inside another (§6.1), which who reads one field alone does not see.
            if std::mem::replace(&mut self.chunked, true) {
                return Err(Status::BadRequest);
            }
        } else if name.eq_ignore_ascii_case("connection") {
            for word in value.split(',').map(trimmed) {
                // RFC 9112 §9.3: who says both means to close.
                if word.eq_ignore_ascii_case("close") {
                    self.connection = Some(false);
                } else if word.eq_ignore_ascii_case("keep-alive") {
                    self.connection.get_or_insert(true);
                }
            }
        } else if name.eq_ignore_ascii_case("expect") {
            if !value.eq_ignore_ascii_case("100-continue") {
                return Err(Status::ExpectationFailed);
            }
            self.expects_continue = true;
        } else if name.eq_ignore_ascii_case("range") {
            self.range = parse_range(value);
        } else {
            self.take_condition(name, value);
        }
        Ok(())
    }

    /// The fields that say for what content a request is meant.
    fn take_condition(&mut self, name: &str, value: &str) {
        let condition = match (name.to_ascii_lowercase().as_str(), value) {
            ("if-match", "*") => Condition::Exists,
            ("if-match", _) => Condition::NeverHolds,
            ("if-none-match", "*") => Condition::IsAbsent,
            ("if-range", _) => return self.has_if_range = true,
            ("content-range", _) => return self.is_part = true,
            _ => return,
        };
        let other = self.condition.filter(|other| *other != condition);
        self.condition = Some(other.map_or(condition, |_| Condition::NeverHolds));
    }

    /// RFC 9112 §6.3: a length beside chunks is an attack or a mistake, and refused.
    fn body(&self) -> Result<BodyLength, Status> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(Status::BadRequest),
            (None, true) => Ok(BodyLength::Chunked),
            (length, false) => Ok(BodyLength::Known(length.unwrap_or(0))),
        }
    }
}

/// RFC 9110 §5.5: what may stand around a value are spaces and tabs. What else Unicode calls a space is part of it.
fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

fn decimal(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// One range in bytes. Anything else is ignored, as RFC 9110 §14.2 allows.
fn parse_range(value: &str) -> Option<Range> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    match (decimal(first), last) {
        (Some(first), "") => Some(Range::From { first, last: None }),
        (Some(first), last) => {
            decimal(last).filter(|&last| last >= first).map(|last| Range::From { first, last: Some(last) })
        }
        (None, last) if first.is_empty() => decimal(last).map(Range::Last),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(text: &str) -> Result<Request, Status> {
        Ok(parse(text.as_bytes())?.expect("the head is whole").0)
    }

    #[test]
    fn a_plain_get() {
        let text = "GET /a%20b?x HTTP/1.1\r\nHost: x\r\n\r\nrest";
        let (request, length) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len() - 4);
        assert_eq!((request.method, request.target.as_str()), (Method::Get, "/a%20b?x"));
        assert!(request.keep_alive && !request.expects_continue);
    }

    #[test]
    fn what_the_fields_say() {
        let closing = request("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        assert!(!closing.keep_alive);
        for (version, fields, keep_alive) in [
            ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
            ("1.1", "Connection: x, keep-alive ,\tclose\r\n", false),
            ("1.1", "Connection: close\u{a0}\r\n", true),
            ("1.0", "", false),
            ("1.0", "Connection: keep-alive\r\n", true),
            ("1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", false),
            ("1.1", "Transfer-Encoding: chunked\r\n", true),
        ] {
            let read = request(&format!("GET / HTTP/{version}\r\nHost: x\r\n{fields}\r\n")).unwrap();
            assert_eq!(read.keep_alive, keep_alive, "{version} {fields:?}");
        }
        let upload =
            request("POST /f HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n")
                .unwrap();
        assert_eq!((upload.body, upload.expects_continue), (BodyLength::Known(7), true));
        // RFC 9110 §10.1.1: HTTP/1.0 knows no 100, and who sends nothing waits for none.
        for (line, fields) in
            [("POST /f HTTP/1.0", "Content-Length: 7\r\n"), ("GET /f HTTP/1.1", ""), ("HEAD /f HTTP/1.1", "")]
        {
            let text = format!("{line}\r\nHost: x\r\n{fields}Expect: 100-continue\r\n\r\n");
            assert!(!request(&text).unwrap().expects_continue, "{text:?}");
        }
        let ranged = request("GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=5-9\r\n\r\n").unwrap();
        assert_eq!(ranged.range, Some(Range::From { first: 5, last: Some(9) }));
        let head = request("HEAD / HTTP/1.1\r\nHost: x\r\nRange: bytes=5-9\r\n\r\n").unwrap();
        assert_eq!(head.range, None);
    }

    #[test]
    fn ranges() {
        assert_eq!(parse_range("bytes=5-"), Some(Range::From { first: 5, last: None }));
        assert_eq!(parse_range("bytes=-5"), Some(Range::Last(5)));
        for ignored in ["bytes=9-5", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5", "bytes=", "bytes=-"] {
            assert_eq!(parse_range(ignored), None, "{ignored}");
        }
    }

    #[test]
    fn refusals() {
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", Status::BadRequest),
            ("BREW / HTTP/1.1\r\nHost: x\r\n\r\n", Status::MethodNotAllowed),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                Status::BadRequest,
            ),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Status::BadRequest,
            ),
            ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", Status::NotImplemented),
            ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\u{a0}\r\n\r\n", Status::NotImplemented),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                Status::BadRequest,
            ),
            ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\u{a0}\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", Status::ExpectationFailed),
        ] {
            assert_eq!(request(text), Err(status), "{text:?}");
        }
        let endless = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(endless.as_bytes()), Err(Status::HeadTooLarge));
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
