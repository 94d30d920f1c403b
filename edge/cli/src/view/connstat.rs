//! `connstat`: TCP connections and listeners with what TCP knows of each, in columns of the caller's choice.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_api::{SocketInfo, Which};
use firelane_model::NetstackName;

use super::{JsonList, each_page};
use crate::common::Call;
use crate::getopt::{Opt, flag, value};
use crate::ofmt::{Column, Style, Table, UNKNOWN, col};
use crate::repeat::Repeat;
use crate::session::{Failure, Session, die};
use crate::stamp::Stamp;

const PROGRAM: &str = "connstat";
const USAGE: &str = "connstat [-eLj] [-P] [-4|-6] [-N netstack] [-T d|u] [-F field=value[,...]]\n\
                     \x20               [-i interval] [-c count] [-o field[,...]]";

pub(crate) const OPTIONS: &[Opt] = &[
    flag('e', "established"),
    flag('L', "no-loopback"),
    flag('P', "parsable"),
    flag('j', "json"),
    flag('4', "ipv4"),
    flag('6', "ipv6"),
    value('N', "netstack"),
    value('z', "netstack"),
    value('T', "timestamp"),
    value('F', "filter"),
    value('i', "interval"),
    value('c', "count"),
    value('o', "output"),
];

const FIELDS: &[Column] = &[
    col("LADDR", 14),
    col("LPORT", 6),
    col("RADDR", 14),
    col("RPORT", 6),
    col("STATE", 12),
    col("INBYTES", 11),
    col("INSEGS", 11),
    col("INUNORDERBYTES", 15),
    col("INUNORDERSEGS", 14),
    col("OUTBYTES", 11),
    col("OUTSEGS", 11),
    col("RETRANSBYTES", 13),
    col("RETRANSSEGS", 12),
    col("SUNA", 11),
    col("UNSENT", 11),
    col("SWND", 11),
    col("CWND", 11),
    col("RWND", 11),
    col("MSS", 6),
    col("RTO", 8),
    col("RTT", 8),
    col("RTTS", 8),
    col("RTTC", 11),
    col("FUSED", 6),
    col("FUSEDINBYTES", 13),
    col("FUSEDOUTBYTES", 14),
];
/// The states that `-F state=` may name: all of the original's.
const STATES: &[&str] = &[
    "CLOSED",
    "IDLE",
    "BOUND",
    "LISTEN",
    "SYN_SENT",
    "SYN_RCVD",
    "ESTABLISHED",
    "CLOSE_WAIT",
    "FIN_WAIT_1",
    "CLOSING",
    "LAST_ACK",
    "FIN_WAIT_2",
    "TIME_WAIT",
];
const DEFAULT_FIELDS: &str = "laddr,lport,raddr,rport,state";

/// Runs `connstat` with the words after its name.
pub(crate) fn run(session: &mut Session<'_>, words: &[String]) -> Result<(), Failure> {
    let call = Call::of(OPTIONS, USAGE, words)?;
    if !call.args.operands.is_empty() {
        return Err(die(format!("unexpected operand '{}'\nusage: {USAGE}", call.args.operands[0])));
    }
    let mut filter = Filter::of(&call)?;
    let mut repeat = Repeat::new(call.interval()?, count(&call)?);
    let parsable = call.args.has('P');
    // Programs tell the time from a row by the sign.
    let stamp = Stamp::of(&call, if parsable { "= " } else { "" })?;
    if parsable && !call.args.has('o') {
        return Err(die("-P requires -o"));
    }
    let fields = call.args.value('o');
    let style = Style { fields, parsable, separator: Some(','), ..Style::default() };
    loop {
        stamp.print(session)?;
        let filter = filter.with_own(session)?;
        if call.args.has('j') {
            json(session, filter)?;
        } else {
            let mut table = Table::open(session, PROGRAM, FIELDS, DEFAULT_FIELDS, style)?;
            let mut is_headed = false;
            each_page(session, filter.netstack.as_deref(), |session, sockets| {
                if !core::mem::replace(&mut is_headed, true) {
                    table.header(session)?;
                }
                sockets.iter().filter(|it| filter.shows(it)).try_for_each(|it| table.row(session, &row(it)))
            })?;
        }
        if !repeat.again(session)? {
            return Ok(());
        }
    }
}

/// How many reports `-c` asks for.
fn count(call: &Call<'_>) -> Result<Option<u32>, Failure> {
    let Some(text) = call.args.value('c') else { return Ok(None) };
    if !call.args.has('i') {
        return Err(die("-c requires -i"));
    }
    let number = text.parse::<u32>().ok().filter(|&number| number > 0);
    number.map(Some).ok_or_else(|| die(format!("invalid count value '{text}'")))
}

fn json(session: &mut Session<'_>, filter: &Filter) -> Result<(), Failure> {
    let mut list = JsonList::new("connections");
    each_page(session, filter.netstack.as_deref(), |session, sockets| {
        sockets.iter().filter(|it| filter.shows(it)).try_for_each(|it| list.push(session, it))
    })?;
    list.close(session)
}

/// Which connections are shown.
struct Filter {
    established: bool,
    /// Whether connections of a netstack with itself are left out.
    no_loopback: bool,
    /// Whose addresses are whose, if that counts.
    own: BTreeSet<(NetstackName, IpAddr)>,
    families: [bool; 2],
    netstack: Option<String>,
    wanted: Vec<(&'static str, String)>,
}

impl Filter {
    fn of(call: &Call<'_>) -> Result<Self, Failure> {
        let (v4, v6) = (call.args.has('4'), call.args.has('6'));
        let mut wanted = Vec::new();
        for part in call.args.value('F').into_iter().flat_map(|text| text.split(',')) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let known = ["laddr", "lport", "raddr", "rport", "state"];
            let Some(name) = known.into_iter().find(|it| it.eq_ignore_ascii_case(name)) else {
                return Err(die(format!("invalid filter field '{name}' ({})", known.join(", "))));
            };
            let value = check(name, value)
                .map_err(|allowed| die(format!("invalid filter value '{value}' for {name} ({allowed})")))?;
            wanted.push((name, value));
        }
        Ok(Self {
            established: call.args.has('e'),
            no_loopback: call.args.has('L'),
            own: BTreeSet::new(),
            families: [v4 || !v6, v6 || !v4],
            netstack: call.args.value('N').map(str::to_owned),
            wanted,
        })
    }

    /// The same with the addresses that the netstacks have now.
    fn with_own(&mut self, session: &Session<'_>) -> Result<&Self, Failure> {
        if self.no_loopback {
            let addresses = session.api.addrs(Which::Active)?.into_iter();
            let own =
                addresses.filter_map(|it| Some((it.netstack, it.addr.split('/').next()?.parse().ok()?)));
            self.own = own.collect();
        }
        Ok(self)
    }

    /// TCP's, and with `-L` none that a netstack has with itself.
    fn shows(&self, socket: &SocketInfo) -> bool {
        if socket.protocol != "tcp" {
            return false;
        }
        let is_own = |remote: IpAddr| {
            remote == socket.local.ip()
                || remote.is_loopback()
                || self.own.contains(&(socket.netstack.clone(), remote))
        };
        let is_itself =
            socket.local.ip().is_loopback() || socket.remote.is_some_and(|remote| is_own(remote.ip()));
        let fields = row(socket);
        self.families[usize::from(socket.local.is_ipv6())]
            && (!self.established || socket.state == "ESTABLISHED")
            && !(self.no_loopback && is_itself)
            && self.wanted.iter().all(|(name, value)| {
                let place = FIELDS.iter().position(|field| field.name.eq_ignore_ascii_case(name));
                place.is_some_and(|place| fields[place] == *value)
            })
    }
}

/// The value as the field shows it, or what it may have.
fn check(name: &str, value: &str) -> Result<String, String> {
    let (shown, allowed) = match name {
        "laddr" | "raddr" => {
            (value.parse().ok().map(|it: IpAddr| it.to_string()), "an IP address".to_owned())
        }
        "lport" | "rport" => (value.parse().ok().map(|it: u16| it.to_string()), "a port".to_owned()),
        _ => {
            let state = STATES.iter().find(|state| state.eq_ignore_ascii_case(value));
            (state.map(|state| (*state).to_owned()), STATES.join(", "))
        }
    };
    shown.ok_or(allowed)
}

/// A connection's fields, in the order of [`FIELDS`]. Times are in milliseconds, round-trip times in microseconds, as in
/// the original.
fn row(socket: &SocketInfo) -> Vec<String> {
    let nobody: SocketAddr = match socket.local {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A listener's peer is written as in the original.
    let remote = socket.remote.unwrap_or(nobody);
    let mut row = vec![
        socket.local.ip().to_string(),
        socket.local.port().to_string(),
        remote.ip().to_string(),
        remote.port().to_string(),
        socket.state.clone(),
    ];
    let Some(it) = &socket.tcp else {
        row.resize(FIELDS.len(), String::new());
        return row;
    };
    let unknown = UNKNOWN.to_owned();
    let counts = |list: &[u64]| list.iter().map(u64::to_string).collect::<Vec<_>>();
    row.extend(counts(&[
        it.inbytes,
        it.insegs.into(),
        it.inunorderbytes,
        it.inunordersegs.into(),
        it.outbytes,
        it.outsegs.into(),
        it.retransbytes,
        it.retranssegs.into(),
    ]));
    row.extend(counts(&[it.suna, it.unsent, it.swnd, it.cwnd, it.rwnd, it.mss, it.rto_us / 1000]));
    row.push(it.rtt_us.map(|rtt| rtt.to_string()).unwrap_or_default());
    row.extend(counts(&[it.rtts_us, it.rttc.into()]));
    row.push(if it.fused { "yes" } else { "no" }.to_owned());
    row.extend(
        it.fused_bytes.map_or([unknown.clone(), unknown], |counts| counts.map(|count| count.to_string())),
    );
    row
}
