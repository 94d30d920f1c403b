//! The engine's sockets in the words of the interface, page by page.
//!
//! Called by `host.rs` without its lock: a page waits for lanes, and configuration must not wait for it.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use firelane::{
    ConnectionRow, Cursor, Engine, Owner, ProgramSocket, SocketCursor, SocketKind, SocketPage as Found,
    SocketRow, Table,
};
use firelane_api::{ApiError, ConnectionInfo, ProgramInfo, SocketInfo, SocketPage, Status};
use firelane_model::NetstackName;
use firelane_units::{Bytes, NetstackId};

use crate::accounts::Accounts;

/// The sockets of a page: some hundred kilobytes of JSON.
const ON_A_PAGE: usize = 1024;

/// The page that begins at `after`.
pub(crate) fn page(
    engine: &Engine,
    netstacks: &BTreeMap<NetstackName, NetstackId>,
    netstack: Option<&str>,
    after: Option<&str>,
    programs: &[ProgramSocket],
) -> Result<SocketPage, ApiError> {
    let wanted = match netstack {
        None => None,
        Some(name) => {
            let known = netstacks.get(name).copied();
            Some(known.ok_or_else(|| ApiError::new(Status::NotFound, "netstack", name, ""))?)
        }
    };
    let from = match after {
        None => SocketCursor::default(),
        Some(text) => read_cursor(text).ok_or_else(|| {
            ApiError::new(Status::BadArg, "after", text, "what the page before gave as next")
        })?,
    };
    let found = engine.sockets(wanted, from, ON_A_PAGE);
    let Found { rows, next } =
        found.map_err(|error| ApiError::new(Status::Failed, "", "", error.to_string()))?;
    let name = |id: NetstackId| netstacks.iter().find(|(_, it)| **it == id).map(|(name, _)| name);
    let key = |netstack, local, remote: Option<SocketAddr>| (netstack, plain(local), remote.map(plain));
    let owners: HashMap<_, &ProgramSocket> =
        programs.iter().filter_map(|it| Some((key(it.netstack, it.local?, it.remote), it))).collect();
    let accounts = LazyCell::new(Accounts::read);
    let owned = |row: &SocketRow| {
        let owner = owners.get(&key(row.netstack, row.local, row.remote));
        let mut info = info(name(row.netstack)?, row);
        if let Some(tcp) = &mut info.tcp {
            tcp.fused_bytes = owner.and_then(|it| it.fused);
        }
        Some(SocketInfo { program: owner.map(|it| program(it, &accounts)), ..info })
    };
    let sockets = rows.iter().filter_map(owned).collect();
    Ok(SocketPage { sockets, next: next.map(spell_cursor) })
}

/// IPv4 in IPv6's clothes is the same address to a lane.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn program(it: &ProgramSocket, accounts: &Accounts) -> ProgramInfo {
    let [sent, received] = it.carried;
    let Owner { pid, command, user, .. } = it.owner.clone();
    ProgramInfo {
        user: accounts.spelled(user),
        pid,
        command,
        lane: it.lane.map(|lane| lane.0),
        sent,
        received,
    }
}

/// `lane.table.netstack.place`
fn spell_cursor(SocketCursor { lane, place }: SocketCursor) -> String {
    let Cursor { table, netstack, place } = place;
    let table = Table::ALL.iter().position(|it| *it == table).unwrap_or_default();
    format!("{lane}.{table}.{netstack}.{place}")
}

fn read_cursor(text: &str) -> Option<SocketCursor> {
    let mut parts = text.split('.');
    let lane = parts.next()?.parse().ok()?;
    let table = *Table::ALL.get(parts.next()?.parse::<usize>().ok()?)?;
    let netstack = parts.next()?.parse().ok()?;
    let place = parts.next()?.parse().ok()?;
    let cursor = SocketCursor { lane, place: Cursor { table, netstack, place } };
    parts.next().is_none().then_some(cursor)
}

fn info(netstack: &NetstackName, row: &SocketRow) -> SocketInfo {
    let (protocol, state) = match &row.what {
        SocketKind::Listener { .. } => ("tcp", "LISTEN"),
        SocketKind::Connection(it) => ("tcp", it.info.state.word()),
        SocketKind::TimeWait { .. } => ("tcp", "TIME_WAIT"),
        SocketKind::Datagram if row.remote.is_some() => ("udp", "Connected"),
        SocketKind::Datagram => ("udp", "Idle"),
    };
    let mut info = SocketInfo {
        netstack: netstack.clone(),
        protocol: protocol.to_owned(),
        state: state.to_owned(),
        local: row.local,
        remote: row.remote,
        backlog: None,
        time_wait_ms: None,
        program: None,
        tcp: None,
    };
    match &row.what {
        SocketKind::Listener { waiting, backlog } => {
            info.backlog = Some([*waiting, *backlog].map(|it| it as u64))
        }
        SocketKind::Connection(it) => info.tcp = Some(Box::new(connection(it))),
        SocketKind::TimeWait { left } => info.time_wait_ms = Some(left.as_millis() as u64),
        SocketKind::Datagram => {}
    }
    info
}

fn connection(row: &ConnectionRow) -> ConnectionInfo {
    let it = &row.info;
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    let [snxt, suna_seq, rnxt, rack] = row.sequence.map(|number| number.0);
    let Bytes(suna) = it.unacknowledged;
    ConnectionInfo {
        inbytes: it.bytes_received.0,
        outbytes: it.bytes_acknowledged.0,
        retransbytes: it.troubles.repeated_bytes.0,
        insegs: it.counts.text_in,
        outsegs: it.text_out_once(),
        retranssegs: it.troubles.repeated,
        inunordersegs: it.troubles.unordered,
        inunorderbytes: it.troubles.unordered_bytes.0,
        rtts_us: micros(it.rtt_measured.1),
        rttc: it.rtt_measured.0,
        recvq: row.receive_queue as u64,
        sendq: row.send_queue as u64,
        suna,
        unsent: (row.send_queue as u64).saturating_sub(suna),
        swnd: it.send_window.0,
        rwnd: it.receive_window.0,
        cwnd: it.congestion_window.0,
        ssthresh: it.slow_start_threshold.map(|it| it.0),
        mss: it.send_mss.bytes().into(),
        rto_us: micros(it.rto),
        rtt_us: it.rtt.map(micros),
        rttvar_us: micros(it.rtt_variation),
        rttmin_us: it.rtt_minimum.map(micros),
        delivery_rate: it.delivery_rate.map(|rate| rate.bps()),
        congestion: it.congestion.word().to_owned(),
        phase: format!("{:?}", it.phase).to_lowercase(),
        timestamps: it.timestamps,
        sack: it.sack,
        ecn: it.ecn,
        fused: row.is_fused,
        fused_bytes: None,
        snxt,
        suna_seq,
        rnxt,
        rack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nothing_else_is_one() {
        for table in Table::ALL {
            let cursor = SocketCursor { lane: 3, place: Cursor { table, netstack: 7, place: u32::MAX } };
            assert_eq!(read_cursor(&spell_cursor(cursor)), Some(cursor));
        }
        for bad in ["", "0", "0.0.0", "0.0.0.0.0", "0.4.0.0", "-1.0.0.0", "0.0.0.4294967296", "a.b.c.d"] {
            assert_eq!(read_cursor(bad), None, "{bad:?}");
        }
    }
}
