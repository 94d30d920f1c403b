//! A capture's request: which link or flow, how many frames, how much of each.
//!
//! The answer is no JSON but a pcapng stream that ends with its connection, so it passes by `dispatch`: the server reads
//! the request with [`CaptureRequest::from_query`], and whoever implements the interface writes into a sink.

use firelane_model::{FlowName, LinkName};

use crate::{ApiError, Status};

/// How much of a frame is copied unless said otherwise: all of it.
const SNAP_MAX: u32 = 65_549;
/// Less would not even show the headers.
const SNAP_MIN: u32 = 64;

/// What is captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaptureOf {
    /// A VNIC, or what is over a link or etherstub.
    Link(LinkName),
    /// A flow.
    Flow(FlowName),
}

/// A capture's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureRequest {
    /// What is captured.
    pub of: CaptureOf,
    /// After how many frames it ends; none for when the client goes away.
    pub count: Option<u64>,
    /// How many bytes of a frame are copied.
    pub snap: u32,
}

impl CaptureRequest {
    /// A capture of whole frames until the client goes away.
    pub fn new(of: CaptureOf) -> Self {
        Self { of, count: None, snap: SNAP_MAX }
    }

    /// The request as the query of its path.
    pub fn query(&self) -> String {
        let of = match &self.of {
            CaptureOf::Link(name) => format!("link={name}"),
            CaptureOf::Flow(name) => format!("flow={name}"),
        };
        let count = self.count.map(|count| format!("&count={count}")).unwrap_or_default();
        format!("{of}&snap={}{count}", self.snap)
    }

    /// Reads the query.
    ///
    /// # Errors
    /// A part is unknown or has no such value, or neither a link nor a flow is named.
    pub fn from_query(query: &str) -> Result<Self, ApiError> {
        let bad = |field: &str, value: &str, allowed: &str| {
            ApiError::new(Status::BadArg, field, value, allowed.to_owned())
        };
        let (mut of, mut count, mut snap) = (None, None, SNAP_MAX);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("link", name)) if of.is_none() => {
                    let name = name.parse().map_err(|_| ApiError::from(Status::LinkInvalid))?;
                    of = Some(CaptureOf::Link(name));
                }
                Some(("flow", name)) if of.is_none() => {
                    let name = name.parse().map_err(|_| bad("flow", name, "the name of a flow"))?;
                    of = Some(CaptureOf::Flow(name));
                }
                Some(("count", text)) => {
                    let known = text.parse().ok().filter(|&count| count > 0);
                    count = Some(known.ok_or_else(|| bad("count", text, "a number of frames"))?);
                }
                Some(("snap", text)) => {
                    let known = text.parse().ok().filter(|snap| (SNAP_MIN..=SNAP_MAX).contains(snap));
                    let allowed = format!("a number of bytes from {SNAP_MIN} to {SNAP_MAX}");
                    snap = known.ok_or_else(|| bad("snap", text, &allowed))?;
                }
                _ => return Err(bad("query", part, "link or flow, count, snap")),
            }
        }
        let of = of.ok_or_else(|| bad("query", query, "a link or a flow"))?;
        Ok(Self { of, count, snap })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_from_its_query() {
        let of_link = CaptureRequest::new(CaptureOf::Link("web0".parse().unwrap()));
        let of_flow = CaptureRequest::new(CaptureOf::Flow("http-1".parse().unwrap()));
        for request in [
            CaptureRequest { count: Some(7), ..of_link.clone() },
            CaptureRequest { snap: 96, ..of_flow },
            of_link,
        ] {
            assert_eq!(CaptureRequest::from_query(&request.query()), Ok(request));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (query, said) in [
            ("", "a link or a flow"),
            ("link=web0&count=0", "a number of frames"),
            ("link=web0&snap=3", "from 64 to"),
            ("link=web0&link=web1", "link or flow, count, snap"),
            ("colour=red", "link or flow, count, snap"),
        ] {
            let error = CaptureRequest::from_query(query).unwrap_err();
            assert!(error.to_string().contains(said), "{query}: {error}");
        }
    }
}
