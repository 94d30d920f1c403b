//! What passes a host's uplinks, a line per frame, when `FIRELANE_TRACE` is set.
//!
//! A driver around a wire's end. The lines read like tcpdump's, with the virtual time in front.

use core::fmt::Write as _;

use firelane_driver_memory::End;
use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, Instant};
use firelane_wire::{EtherType, EthernetView, IpProtocol, Ipv4View, Ipv6View, TcpFlags, TcpView};

/// A wire's end as a host's lane has it.
#[derive(Debug)]
pub struct Port {
    end: End,
    /// The host's number, if what passes is to be printed.
    traced: Option<usize>,
    now: Instant,
}

impl Port {
    pub(crate) fn new(end: End, host: usize) -> Self {
        let traced = std::env::var_os("FIRELANE_TRACE").map(|_| host);
        Self { end, traced, now: Instant::ZERO }
    }

    fn print(&self, arrow: char, chain: &Chain, from: usize) {
        if let Some(host) = self.traced {
            for frame in chain.iter().skip(from) {
                let seconds = self.now.nanos() as f64 / 1e9;
                eprintln!("{seconds:.6} host {host} {arrow} {}", line(frame.as_slice()));
            }
        }
    }
}

impl Driver for Port {
    fn capabilities(&self) -> Capabilities {
        self.end.capabilities()
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let before = out.len();
        let count = self.end.receive(pools, budget, out, drops);
        self.print('<', out, before);
        count
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        self.print('>', chain, 0);
        self.end.transmit(chain, drops);
    }

    fn notify(&mut self, on: bool) -> bool {
        self.end.notify(on)
    }

    fn next_event(&self) -> Option<Instant> {
        self.end.next_event()
    }

    fn advance(&mut self, now: Instant) {
        self.now = now;
        self.end.advance(now);
    }
}

/// A frame in one line.
pub fn line(frame: &[u8]) -> String {
    let Ok(ethernet) = EthernetView::parse(frame) else { return format!("{} bytes, cut", frame.len()) };
    let packet = match ethernet.ethertype() {
        EtherType::IPV4 => Ipv4View::parse(ethernet.payload())
            .ok()
            .map(|ip| packet(ip.src().into(), ip.dst().into(), ip.protocol(), ip.payload())),
        EtherType::IPV6 => Ipv6View::parse(ethernet.payload())
            .ok()
            .map(|ip| packet(ip.src().into(), ip.dst().into(), ip.next_header(), ip.payload())),
        other => Some(format!("type {:04x}", other.0)),
    };
    packet.unwrap_or_else(|| format!("{} bytes, bad IP", frame.len()))
}

fn packet(src: core::net::IpAddr, dst: core::net::IpAddr, protocol: IpProtocol, bytes: &[u8]) -> String {
    let segment = TcpView::parse(bytes).ok().filter(|_| protocol == IpProtocol::TCP);
    let Some(tcp) = segment else {
        return format!("{src} > {dst} protocol {} ({})", protocol.0, bytes.len());
    };
    let mut text = format!("{src}.{} > {dst}.{} ", tcp.src_port().0, tcp.dst_port().0);
    let letters = [
        (TcpFlags::SYN, 'S'),
        (TcpFlags::FIN, 'F'),
        (TcpFlags::RST, 'R'),
        (TcpFlags::PSH, 'P'),
        (TcpFlags::URG, 'U'),
        (TcpFlags::ACK, '.'),
    ];
    text.extend(
        letters.into_iter().filter(|(flag, _)| tcp.flags().contains(*flag)).map(|(_, letter)| letter),
    );
    let _ = write!(text, " {}({})", tcp.seq().0, tcp.payload().len());
    if let Some(ack) = tcp.ack() {
        let _ = write!(text, " ack {}", ack.0);
    }
    let _ = write!(text, " win {}", tcp.window());
    let options = tcp.options();
    if let Some((value, echo)) = options.timestamps {
        let _ = write!(text, " ts {value} {echo}");
    }
    for (left, right) in options.sack.iter() {
        let _ = write!(text, " sack {}-{}", left.0, right.0);
    }
    if !tcp.is_checksum_valid(src, dst) {
        text.push_str(" BAD SUM");
    }
    text
}
