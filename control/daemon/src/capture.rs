//! A capture from its request to its stream, and the stream as an HTTP body.
//!
//! `host.rs` looks the names up under its lock and lets go of it; what follows may last for days. The client's pace is
//! the stream's: while he does not read, the lanes' rings fill and what finds no room is counted.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use firelane::{Capture, CaptureOf};
use firelane_api::{ApiError, CaptureRequest, Status};
use firelane_units::LinkId;
use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc::Receiver;

use crate::refusal::refused;
use crate::works::Works;

/// How often a capture looks when there was nothing.
const POLL: Duration = Duration::from_millis(20);

/// A capture that has begun.
#[derive(Debug)]
pub(crate) struct Running {
    capture: Capture,
    names: BTreeMap<LinkId, String>,
    left: Option<u64>,
}

impl Running {
    /// Begins the capture that is asked for.
    pub(crate) fn begin(works: &Works, wanted: &CaptureRequest) -> Result<Self, ApiError> {
        let of = match &wanted.of {
            firelane_api::CaptureOf::Flow(name) => {
                let id = works.flows.get(name);
                CaptureOf::Flow(*id.ok_or_else(|| ApiError::new(Status::NotFound, "flow", name, ""))?)
            }
            firelane_api::CaptureOf::Link(name) => {
                let vnic = works.vnics.get(name).map(|vnic| vnic.id);
                let id = vnic.or_else(|| works.links.get(name).map(|link| link.id));
                CaptureOf::Link(id.ok_or_else(|| ApiError::new(Status::NotFound, "link", name, ""))?)
            }
        };
        let capture = works.engine.capture(of, wanted.snap as usize).map_err(refused)?;
        Ok(Self { capture, names: port_names(works), left: wanted.count })
    }

    /// Writes the stream into `sink` until that answers `false` or all is written that was asked for.
    pub(crate) fn run(mut self, sink: &mut dyn FnMut(&[u8]) -> bool) {
        let mut out = Vec::new();
        loop {
            let Self { capture, names, left } = &mut self;
            let name = |link: LinkId| names.get(&link).cloned().unwrap_or_else(|| format!("link {link}"));
            let frames = capture.read_pcapng(&mut out, left.unwrap_or(u64::MAX), name);
            *left = left.map(|left| left - frames);
            if !sink(&out) || *left == Some(0) {
                return;
            }
            out.clear();
            if frames == 0 {
                std::thread::sleep(POLL);
            }
        }
    }
}

/// What a channel gives, as a body without an end of its own.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) first: Option<Vec<u8>>,
    pub(crate) rest: Receiver<Vec<u8>>,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.first.take() {
            Some(first) => Some(first),
            None => ready!(self.rest.poll_recv(context)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes.into()))))
    }
}

/// What ports are called: VNICs, the devices of links, the ends of wires over links, and what leads into tunnels.
pub(crate) fn port_names(works: &Works) -> BTreeMap<LinkId, String> {
    let vnics = works.vnics.iter().map(|(name, vnic)| (vnic.id, name.to_string()));
    let uplinks = works.links.iter().filter_map(|(name, link)| Some((link.uplink?, name.to_string())));
    let wires =
        works.wires.iter().flat_map(|(name, wire)| wire.ports().map(move |id| (id, name.to_string())));
    let tunnels = works.vnics.iter().filter(|(_, vnic)| vnic.over.is_none());
    let tunnels =
        tunnels.filter_map(|(name, vnic)| Some((works.engine.tunnel_port(vnic.id)?, name.to_string())));
    vnics.chain(uplinks).chain(wires).chain(tunnels).collect()
}
