//! From a request to a call of the trait: the routes, and nothing of HTTP but method, path and body.
//!
//! A server hands every request of its clients to [`dispatch`] and sends back what it gives. Nothing here
//! panics for any bytes, and every refusal has a body that names the field.

use std::borrow::Cow;

use firelane_model::MODEL_TEXT_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::handlers::ROUTES;
use crate::once::Once;
use crate::{Api, ApiError, CaptureRequest, Replacing, Status, Which};

/// The methods of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Reads.
    Get,
    /// Makes an object.
    Post,
    /// Replaces the whole.
    Put,
    /// Changes an object.
    Patch,
    /// Removes an object.
    Delete,
}

impl Method {
    /// The word on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// The method of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete].into_iter().find(|m| m.word() == word)
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is to be done.
    pub method: Method,
    /// To what: the path without the query.
    pub path: &'a str,
    /// The query without its question mark; empty if there is none.
    pub query: &'a str,
    /// The body; empty if there is none.
    pub body: &'a [u8],
}

/// A response. Its body is JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A request whose path has been taken apart.
pub(crate) struct Call<'a> {
    /// The name in the path; empty for a collection.
    pub(crate) name: &'a str,
    query: &'a str,
    body: &'a [u8],
    /// Whether anybody still waits for the answer.
    pub(crate) is_awaited: &'a dyn Fn() -> bool,
}

impl Call<'_> {
    pub(crate) fn which(&self) -> Result<Which, ApiError> {
        Ok(if self.flag("persistent")? { Which::Persistent } else { Which::Active })
    }

    pub(crate) fn temporary(&self) -> Result<bool, ApiError> {
        self.flag("temporary")
    }

    /// The values of `names` in the query, which may have no others. No value has bytes that a query escapes.
    pub(crate) fn values<const N: usize>(&self, names: [&str; N]) -> Result<[Option<&str>; N], ApiError> {
        let mut values = [None; N];
        for part in self.query.split('&').filter(|part| !part.is_empty()) {
            let known = part
                .split_once('=')
                .and_then(|(key, value)| Some((names.iter().position(|name| *name == key)?, value)));
            let Some((place, value)) = known else {
                return Err(ApiError::new(Status::BadArg, "query", part, names.join("=, ") + "="));
            };
            values[place] = Some(value);
        }
        Ok(values)
    }

    fn flag(&self, name: &str) -> Result<bool, ApiError> {
        let mut value = false;
        for part in self.query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((key, said)) if key == name => value = flag(name, Some(said))?,
                _ => return Err(not_a_flag(name, part)),
            }
        }
        Ok(value)
    }

    /// How a configuration is to be replaced.
    pub(crate) fn replacing(&self) -> Result<Replacing, ApiError> {
        let [temporary, empty, of] = self.values(["temporary", "empty", "configuration"])?;
        let refused = |why: &str| ApiError::new(Status::BadArg, "configuration", of.unwrap_or_default(), why);
        let of = of.map(str::parse).transpose().map_err(refused)?;
        Ok(Replacing { temporary: flag("temporary", temporary)?, empty: flag("empty", empty)?, of })
    }

    pub(crate) fn capture(&self) -> Result<CaptureRequest, ApiError> {
        CaptureRequest::from_query(self.query)
    }

    /// The query must be empty.
    pub(crate) fn no_flags(&self) -> Result<(), ApiError> {
        if self.query.is_empty() {
            Ok(())
        } else {
            Err(ApiError::new(Status::BadArg, "query", self.query, "none"))
        }
    }

    /// Who says in a body what belongs into the query would be taken to have said nothing.
    fn has_body_if(&self, may_have: bool) -> Result<(), ApiError> {
        match may_have || self.body.is_empty() {
            true => Ok(()),
            false => {
                let allowed =
                    "none with this method; what it is asked with is in its query, such as ?temporary=true";
                Err(ApiError::new(Status::BadArg, "body", "", allowed))
            }
        }
    }

    /// The body, which is an object: a list would be taken for one whose fields are said in their order, and an empty one for an
    /// object in which nothing is said.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let refused = |why: String| ApiError::new(Status::BadArg, "body", "", why);
        if !self.body.trim_ascii_start().starts_with(b"{") {
            return Err(refused("a JSON object, which begins with {".to_owned()));
        }
        let faulty = |error: serde_json::Error| refused(error.to_string());
        serde_json::from_slice::<Once>(self.body).map_err(faulty)?;
        serde_json::from_slice(self.body).map_err(faulty)
    }

    pub(crate) fn parsed<T: std::str::FromStr>(&self, field: &str) -> Result<T, ApiError>
    where
        T::Err: std::fmt::Display,
    {
        let unknown = |error: T::Err| ApiError::new(Status::NotFound, field, self.name, error.to_string());
        self.name.parse().map_err(unknown)
    }
}

/// What a query says of a flag, which is not set where it says nothing.
fn flag(name: &str, said: Option<&str>) -> Result<bool, ApiError> {
    let Some(said) = said else { return Ok(false) };
    said.parse().map_err(|_| not_a_flag(name, &format!("{name}={said}")))
}

fn not_a_flag(name: &str, part: &str) -> ApiError {
    ApiError::new(Status::BadArg, "query", part, format!("{name}=true or {name}=false"))
}

pub(crate) type Handler = fn(&dyn Api, &Call<'_>) -> Result<Vec<u8>, ApiError>;

/// One route: `{name}` in the path stands for a name, which may contain a slash if it comes last.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) handler: Handler,
}

pub(crate) fn body(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| ApiError::new(Status::Failed, "", "", error.to_string()))
}

/// Answers one request for somebody who waits as long as it takes.
pub fn dispatch(api: &dyn Api, request: &Request<'_>) -> Response {
    dispatch_while(api, request, &|| true)
}

/// Answers one request. What takes its time ends early when the answer is not `is_awaited`: nobody gets it.
pub fn dispatch_while(api: &dyn Api, request: &Request<'_>, is_awaited: &dyn Fn() -> bool) -> Response {
    let path = unescaped(request.path);
    let request = &Request { path: &path, ..*request };
    let answer = find(request, is_awaited).and_then(|(route, call)| {
        call.has_body_if(!matches!(route.method, Method::Get | Method::Delete))?;
        (route.handler)(api, &call)
    });
    match answer {
        Ok(body) => Response { status: 200, body },
        Err(error) => Response { status: error.status.http(), body: body(&error).unwrap_or_default() },
    }
}

fn find<'a>(
    request: &Request<'a>,
    is_awaited: &'a dyn Fn() -> bool,
) -> Result<(&'static Route, Call<'a>), ApiError> {
    if request.body.len() > MODEL_TEXT_MAX {
        let allowed = format!("at most {MODEL_TEXT_MAX} bytes");
        return Err(ApiError::new(Status::TooMany, "body", request.body.len(), allowed));
    }
    let mut known_path = false;
    for route in ROUTES {
        let Some(name) = name_in(route.path, request.path) else { continue };
        if route.method == request.method {
            return Ok((route, Call { name, query: request.query, body: request.body, is_awaited }));
        }
        known_path = true;
    }
    let method = request.method.word();
    Err(if known_path {
        ApiError::new(Status::NotSupported, "method", method, "another method of this path")
    } else {
        ApiError::new(Status::NotFound, "path", request.path.escape_debug(), "see /v1/openapi.json")
    })
}

/// A path without escapes (RFC 3986 §2.1): clients write a name's slash as `%2F`. What is no escape, or of no text, stays.
fn unescaped(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let (bytes, mut plain, mut at) = (path.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let escaped = digit(bytes.get(at + 1)).zip(digit(bytes.get(at + 2)));
        match escaped.filter(|_| byte == b'%').and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).map_or(Cow::Borrowed(path), Cow::Owned)
}

/// The name in `path` if it has the form of `pattern`.
fn name_in<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("{name}") else {
        return (pattern == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && (after.is_empty() || !name.contains('/'))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_model::Model;

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for route in ROUTES {
            let path = route.path.replace("{name}", "web0");
            let request = Request { method: route.method, path: &path, query: "", body: b"" };
            let found = find(&request, &|| true).map(|(found, _)| found.path);
            assert_eq!(found, Ok(route.path), "a route before it takes its requests");
        }
    }

    #[test]
    fn what_is_no_object_is_no_body() {
        let stub = crate::Stub::new(Model::default(), |_, _| Vec::new());
        for route in ROUTES.iter().filter(|it| !matches!(it.method, Method::Get | Method::Delete)) {
            for text in ["", "[]", "null", "\"e1\"", "[\"e1\"]", " [{}]"] {
                // The name is that of a link or that of an address object.
                let told = ["web0", "web0/v4"].map(|name| {
                    let path = route.path.replace("{name}", name);
                    let request =
                        Request { method: route.method, path: &path, query: "", body: text.as_bytes() };
                    let answer = dispatch(&stub, &request);
                    assert_ne!(answer.status, 200, "{path} {text:?}");
                    String::from_utf8_lossy(&answer.body).into_owned()
                });
                assert!(
                    told.iter().any(|it| it.contains("a JSON object")),
                    "{} {text:?}: {told:?}",
                    route.path
                );
            }
        }
    }

    #[test]
    fn nothing_replaces_what_there_is_if_that_is_said_and_not_before() {
        let stub = crate::Stub::new(Model::default(), |_, _| Vec::new());
        let put = |query: &str, text: &str| {
            let body = text.as_bytes();
            let answer = dispatch(&stub, &Request { method: Method::Put, path: "/v1/model", query, body });
            (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
        };
        let count = |which| stub.model(which).expect("there is one").etherstubs.len();
        assert_eq!(put("", "{}").0, 200, "there is nothing that could be lost");
        assert_eq!(put("", "{\"etherstub\":{\"e1\":{}}}").0, 200);
        for (query, text) in
            [("", "{}"), ("temporary=true", "{}"), ("empty=false", "{\"daemon\":{\"lanes\":2}}")]
        {
            let (status, told) = put(query, text);
            assert!(status == 400 && told.contains("\"field\":\"empty\""), "{query} {text}: {told}");
        }
        assert_eq!([Which::Active, Which::Persistent].map(count), [1, 1]);
        assert_eq!(put("temporary=true&empty=true", "{}").0, 200);
        assert_eq!([Which::Active, Which::Persistent].map(count), [0, 1]);
        assert_eq!(put("temporary=true", "{}").0, 200);
        assert_eq!(put("", "{}").0, 400, "what is kept would go");
        assert_eq!(put("empty=true", "{}").0, 200);
        assert_eq!([Which::Active, Which::Persistent].map(count), [0, 0]);
        assert_eq!(put("empty=1", "{}").0, 400);
    }

    #[test]
    fn what_has_changed_since_it_was_read_is_not_replaced() {
        let stub = crate::Stub::new(Model::default(), |_, _| Vec::new());
        let mark = || stub.status().expect("it runs").configuration;
        let put = |query: &str, name: &str| {
            let text = format!("{{\"etherstub\":{{\"{name}\":{{}}}}}}");
            let request = Request { method: Method::Put, path: "/v1/model", query, body: text.as_bytes() };
            let answer = dispatch(&stub, &request);
            (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
        };
        let first = mark();
        assert_eq!(put(&format!("configuration={first}"), "e1").0, 200);
        let second = mark();
        assert_ne!(first, second);
        let (status, told) = put(&format!("temporary=true&configuration={first}"), "e2");
        assert!(status == 409 && told.contains(&second.to_string()), "{told}");
        assert_eq!(mark(), second);
        assert_eq!(put(&format!("temporary=true&configuration={second}"), "e2").0, 200);
        assert_ne!(mark(), second, "what is in force counts, too");
        assert_eq!(put("", "e1").0, 200);
        assert_eq!(mark(), second, "it is the same again");
        for wrong in ["", "+1", "g", "12345678901234567"] {
            assert_eq!(put(&format!("configuration={wrong}"), "e1").0, 400, "{wrong}");
        }
    }

    #[test]
    fn a_path_is_the_same_with_escapes() {
        for (path, plain) in [
            ("/v1/addrs/web0%2Fv4", "/v1/addrs/web0/v4"),
            ("/v1/addrs/web0%2fv4", "/v1/addrs/web0/v4"),
            ("/v1/%6cinks", "/v1/links"),
            ("/v1/links/%C3%A90", "/v1/links/\u{e9}0"),
            ("/v1/links/%252F", "/v1/links/%2F"),
            ("/v1/links/a%", "/v1/links/a%"),
            ("/v1/links/a%2", "/v1/links/a%2"),
            ("/v1/links/a%+1", "/v1/links/a%+1"),
            ("/v1/links/%ff%2F", "/v1/links/%ff%2F"),
        ] {
            assert_eq!(unescaped(path), plain);
        }
        let text = "[etherstub.s0]\n[vnic.web0]\nover = 's0'\nnetstack = 'web'\n\
                    [netstack.web.addresses]\n'web0/v4' = '10.0.0.1/24'\n";
        let stub = crate::Stub::new(Model::from_toml("test", text).unwrap(), |_, _| Vec::new());
        let path = "/v1/addrs/web0%2Fv4";
        let answer = dispatch(&stub, &Request { method: Method::Delete, path, query: "", body: b"" });
        assert_eq!(answer.status, 200, "{:?}", String::from_utf8_lossy(&answer.body));
        assert!(stub.addrs(Which::Active).unwrap().is_empty());
    }

    #[test]
    fn what_is_said_in_a_body_is_not_passed_over() {
        let stub = crate::Stub::new(Model::from_toml("test", "[etherstub.s0]\n").unwrap(), |_, _| Vec::new());
        for (method, path) in [(Method::Delete, "/v1/etherstubs/s0"), (Method::Get, "/v1/links")] {
            let body = b"{\"temporary\":true}";
            let answer = dispatch(&stub, &Request { method, path, query: "", body });
            let told = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(answer.status == 400 && told.contains("?temporary=true"), "{told}");
        }
        assert_eq!(
            stub.etherstubs(Which::Persistent).unwrap().len(),
            1,
            "it was to return at the next start"
        );
    }

    #[test]
    fn names_in_paths() {
        assert_eq!(name_in("/v1/links", "/v1/links"), Some(""));
        assert_eq!(name_in("/v1/links", "/v1/links/"), None);
        assert_eq!(name_in("/v1/addrs/{name}", "/v1/addrs/web0/v4"), Some("web0/v4"));
        assert_eq!(name_in("/v1/links/{name}/props", "/v1/links/web0/props"), Some("web0"));
        assert_eq!(name_in("/v1/links/{name}/props", "/v1/links/props"), None);
        assert_eq!(name_in("/v1/links/{name}/props", "/v1/links//props"), None);
    }
}
