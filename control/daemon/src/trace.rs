//! Frames followed on their way, in the words of counters and under the names of the model; what steps cost.
//!
//! `host.rs` looks the names up under its lock and lets go of it; what follows may last for a minute.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use firelane::{
    Engine, Headers, InventedPacket, L3, PacketOwner, Seen, Sight, Step, StepCount, Trace, TraceOf, Verdict,
};
use firelane_api::{ApiError, InventedFrame, SeenInfo, Status, StepInfo, TraceReport, TraceRequest};
use firelane_model::{Model, Tap};
use firelane_units::{Direction, FlowId, LinkId, MacAddr, NetstackId, Station};

use crate::capture::port_names;
use crate::refusal::refused;
use crate::works::Works;

/// How often a trace looks, and how long it waits for the end of the last frame's way.
const LOOK: Duration = Duration::from_millis(10);
/// How soon who counts steps notices that nobody waits for them.
const HEED: Duration = Duration::from_millis(100);
/// Who seems to send an invented packet that comes in by a device.
const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xfe]);

/// A trace that has begun.
#[derive(Debug)]
pub(crate) struct Running {
    trace: Trace,
    names: Names,
    frames: u32,
    until: Instant,
}

/// What links, flows, netstacks and their rules are called.
#[derive(Debug)]
struct Names {
    links: BTreeMap<LinkId, String>,
    flows: BTreeMap<FlowId, String>,
    netstacks: BTreeMap<NetstackId, String>,
    /// The rules of their filters, in order.
    rules: BTreeMap<NetstackId, Vec<String>>,
}

impl Running {
    /// Begins the trace that is asked for; a frame that is made up comes in.
    pub(crate) fn begin(works: &Works, model: &Model, wanted: &TraceRequest) -> Result<Self, ApiError> {
        wanted.check()?;
        let of = match (&wanted.address, &wanted.flow) {
            (Some(address), _) => TraceOf::Address(*address),
            (None, Some(name)) => {
                let id = works.flows.get(name);
                TraceOf::Flow(*id.ok_or_else(|| ApiError::new(Status::NotFound, "flow", name, ""))?)
            }
            (None, None) => TraceOf::Invented,
        };
        let invented = wanted.frame.as_ref().map(|frame| invent(works, model, frame)).transpose()?;
        let frames = if invented.is_some() { 1 } else { wanted.frames };
        let trace = works.engine.trace(of, frames).map_err(refused)?;
        if let Some((link, bytes)) = invented {
            trace.invent(link, &bytes).map_err(refused)?;
        }
        let until = Instant::now() + Duration::from_secs(wanted.seconds.into());
        Ok(Self { trace, names: Names::of(works, model), frames, until })
    }

    /// Waits until enough frames were followed to their ends, the time is over, or the answer is not awaited.
    pub(crate) fn finish(self, is_awaited: &dyn Fn() -> bool) -> TraceReport {
        let (mut all, mut lost) = (Vec::new(), 0);
        let mut quiet = 0;
        while quiet < 3 && Instant::now() < self.until && is_awaited() {
            std::thread::sleep(LOOK);
            let (mut seen, missed) = self.trace.take();
            quiet = match self.trace.frames() >= self.frames && seen.is_empty() {
                true => quiet + 1,
                false => 0,
            };
            all.append(&mut seen);
            lost += missed;
        }
        let (mut seen, missed) = self.trace.take();
        all.append(&mut seen);
        all.sort_by_key(|seen| (seen.frame, seen.order));
        TraceReport { seen: all.iter().map(|seen| self.names.info(seen)).collect(), lost: lost + missed }
    }
}

/// The station that has `address`: a netstack's, or a VNIC's whose kernel interface got it from us.
fn station_of(works: &Works, model: &Model, address: IpAddr) -> Option<MacAddr> {
    let has = |tap: &Tap| tap.addresses.iter().any(|it| it.addr() == address);
    let of_kernel = || {
        let (name, _) = model.vnics.iter().find(|(_, vnic)| vnic.tap().is_some_and(has))?;
        works.vnics.get(name).map(|vnic| vnic.mac)
    };
    works.engine.station_of(address).or_else(of_kernel)
}

/// The port that a made-up frame comes in by, and its bytes.
fn invent(works: &Works, model: &Model, frame: &InventedFrame) -> Result<(LinkId, Vec<u8>), ApiError> {
    let no_link = |name: &firelane_model::LinkName| ApiError::new(Status::NotFound, "link", name, "");
    let vnic = works.vnics.get(&frame.link);
    let uplink = works.links.get(&frame.link).and_then(|link| link.uplink);
    let link = vnic.map(|vnic| vnic.id).or(uplink).ok_or_else(|| no_link(&frame.link))?;
    if let Some(bytes) = hexadecimal(&frame.text) {
        return Ok((link, bytes));
    }
    let bad = |why: String| ApiError::new(Status::BadArg, "frame", &frame.text, why);
    let packet: InventedPacket = frame.text.parse().map_err(|why| bad(format!("{why}")))?;
    let to = match &frame.to {
        Some(name) => works.vnics.get(name).ok_or_else(|| no_link(name))?.mac,
        None => station_of(works, model, packet.dst.ip()).ok_or_else(|| {
            bad(format!("no VNIC has {}: say with -t which one it is sent to", packet.dst.ip()))
        })?,
    };
    Ok((link, packet.frame(vnic.map_or(STRANGER, |vnic| vnic.mac), to)))
}

/// Bytes from pairs of hexadecimal digits, which colons and spaces may separate.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> =
        text.chars().filter(|c| !matches!(c, ' ' | ':')).map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let is_whole = !digits.is_empty() && digits.len().is_multiple_of(2);
    is_whole.then(|| digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

impl Names {
    fn of(works: &Works, model: &Model) -> Self {
        let rules = works.netstacks.iter().filter_map(|(name, id)| {
            let rules = &model.netstacks.get(name)?.filter;
            Some((*id, rules.iter().map(ToString::to_string).collect()))
        });
        Self {
            rules: rules.collect(),
            links: port_names(works),
            flows: works.flows.iter().map(|(name, id)| (*id, name.to_string())).collect(),
            netstacks: works.netstacks.iter().map(|(name, id)| (*id, name.to_string())).collect(),
        }
    }

    fn link(&self, link: LinkId) -> String {
        match link {
            firelane::LOOPBACK => "its own loopback".to_owned(),
            link => self.links.get(&link).cloned().unwrap_or_else(|| format!("link {link}")),
        }
    }

    fn info(&self, seen: &Seen) -> SeenInfo {
        let (station, decision) = self.told(&seen.what);
        let reason = match seen.what {
            Sight::Dropped(reason) => Some(reason.word().to_owned()),
            _ => None,
        };
        SeenInfo { frame: seen.frame, lane: seen.lane.0, station: station.to_owned(), decision, reason }
    }

    /// The station, and what was decided there.
    fn told(&self, sight: &Sight) -> (&'static str, String) {
        let word = Station::word;
        match *sight {
            Sight::Received(link, len, headers) => {
                (word(Station::Driver), format!("received at {}, {}", self.link(link), summary(len, headers)))
            }
            Sight::Sent(link, len, headers) => {
                (word(Station::Ip), format!("sent by {}, {}", self.link(link), summary(len, headers)))
            }
            Sight::Flow(link, direction, flow) => {
                let of = flow
                    .map_or("no flow", |flow| self.flows.get(&flow).map_or("its own flow", String::as_str));
                let way = way(direction);
                (word(Station::Flow), format!("{way} at {}: {of}", self.link(link)))
            }
            Sight::Held(_) => (word(Station::Flow), "held by its limit".to_owned()),
            Sight::Switched(link) => (word(Station::Switch), format!("to {}", self.link(link))),
            Sight::Flooded(1) => (word(Station::Switch), "a copy to 1 port".to_owned()),
            Sight::Flooded(n) => (word(Station::Switch), format!("copies to {n} ports")),
            Sight::Device(link) => (word(Station::Driver), format!("to the device of {}", self.link(link))),
            Sight::Handed(lane) => (word(Station::Lane), format!("handed over to lane {lane}")),
            Sight::Netstack(netstack, link) => {
                let name = self.netstacks.get(&netstack).cloned().unwrap_or_else(|| netstack.to_string());
                (word(Station::Lane), format!("to netstack {name} by {}", self.link(link)))
            }
            Sight::Found(owner) => (word(Station::Classify), found(owner).to_owned()),
            Sight::Step(step, direction) => (step.word(), format!("step {}", way(direction))),
            Sight::Judged(netstack, verdict, rule) => {
                (word(Station::Filter), self.judged(netstack, verdict, rule))
            }
            Sight::Translated(headers) => (word(Station::Nat), format!("translated: {}", ends(&headers))),
            Sight::Forwarded => (word(Station::Ip), "forwarded by its route".to_owned()),
            Sight::Kept => (word(Station::Ip), "held for a neighbour or for other fragments".to_owned()),
            Sight::Early => (word(Station::Nat), "held for the first fragment".to_owned()),
            Sight::Consumed => (word(Station::Ip), "was for IP itself".to_owned()),
            Sight::Delivered => (word(Station::Socket), "delivered".to_owned()),
            Sight::Dropped(reason) => (reason.station().word(), format!("dropped: {reason}")),
        }
    }

    /// What a filter has said, and by which rule.
    fn judged(&self, netstack: NetstackId, verdict: Verdict, rule: Option<u32>) -> String {
        let said = match verdict {
            Verdict::Pass => "passed by",
            Verdict::Block(_) => "blocked by",
            Verdict::NoRoom => "no room for a state of",
            Verdict::OutOfWindow => "outside the window of a state of",
        };
        let Some(rule) = rule else { return format!("{said} no rule") };
        let text = self.rules.get(&netstack).and_then(|rules| rules.get(usize::try_from(rule).ok()?));
        match text {
            Some(text) => format!("{said}: {text}"),
            // The list has changed since.
            None => format!("{said} rule {}", rule + 1),
        }
    }
}

const fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
    }
}

const fn found(owner: PacketOwner) -> &'static str {
    match owner {
        PacketOwner::Connection => "a connection's",
        PacketOwner::ForwardedFlow => "a forwarded flow's",
        PacketOwner::Nobody => "no connection or flow is known: the slow path",
    }
}

/// A frame in a line.
fn summary(len: usize, headers: Option<Headers>) -> String {
    match headers {
        Some(headers) => format!("{len} bytes: {}", ends(&headers)),
        None => format!("{len} bytes that nobody can read"),
    }
}

/// What a frame is, from whom and to whom.
fn ends(headers: &Headers) -> String {
    let (src, dst): (IpAddr, IpAddr) = match headers.l3 {
        L3::V4 { src, dst } => (src.into(), dst.into()),
        L3::V6 { src, dst } => (src.into(), dst.into()),
        L3::Arp => return "ARP".to_owned(),
        L3::Malformed | L3::Other => return format!("ethertype {:#06x}", headers.ethertype.0),
    };
    let protocol = match headers.protocol.0 {
        1 | 58 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        other => format!("protocol {other}"),
    };
    match headers.ports {
        Some((from, to)) => {
            let end = |address, port: firelane_units::Port| SocketAddr::new(address, port.0);
            format!("{protocol} {} > {}", end(src, from), end(dst, to))
        }
        None => format!("{protocol} {src} > {dst}"),
    }
}

/// What steps cost within `time`, or for as long as the answer is awaited.
pub(crate) fn steps(
    engine: &Engine,
    time: Duration,
    is_awaited: &dyn Fn() -> bool,
) -> Result<Vec<StepInfo>, ApiError> {
    let meter = engine.count_steps().map_err(refused)?;
    rest(time, is_awaited);
    let counts = meter.counts();
    let each = Step::ALL.into_iter().flat_map(|step| Direction::ALL.map(|direction| (step, direction)));
    let info = |(step, direction): (Step, Direction)| {
        let StepCount { frames, cycles } = counts.of(step, direction);
        StepInfo { step: step.word().to_owned(), direction: way(direction).to_owned(), frames, cycles }
    };
    Ok(each.map(info).collect())
}

/// Sleeps for `time`, or until nobody waits for the end of it.
fn rest(time: Duration, is_awaited: &dyn Fn() -> bool) {
    let until = Instant::now() + time;
    while is_awaited() {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return;
        }
        std::thread::sleep(rest.min(HEED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn nobody_is_waited_for_who_has_gone() {
        let (asked, begin) = (Cell::new(0), Instant::now());
        rest(Duration::from_secs(3600), &|| asked.replace(asked.get() + 1) < 2);
        assert_eq!(asked.get(), 3);
        rest(Duration::from_millis(1), &|| true);
        assert!(begin.elapsed() < Duration::from_secs(600));
    }

    #[test]
    fn digits_are_a_frame_and_words_are_not() {
        assert_eq!(hexadecimal("02:00 ff"), Some(vec![2, 0, 255]));
        for text in ["", "0", "tcp 10.0.0.1:1 10.0.0.2:2", "02 0"] {
            assert_eq!(hexadecimal(text), None, "{text}");
        }
    }
}
