//! `netstat -D`: where the DHCP clients of interfaces stand, in the form of the original.

use firelane_api::{AddrInfo, LeaseInfo, Which};
use firelane_model::{AddrObjName, NetstackName};
use serde::Serialize;

use crate::session::{Failure, Session};
use crate::stamp::utc;

/// A client.
#[derive(Serialize)]
struct Client {
    name: AddrObjName,
    netstack: NetstackName,
    interface: String,
    is_v6: bool,
    #[serde(flatten)]
    lease: LeaseInfo,
}

/// `-D`; with `-I` of one interface.
pub(super) fn show(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    families: &[bool],
    interface: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let addrs = session.api.addrs(Which::Active)?;
    let wanted = |it: &Client| {
        let is_named = interface.is_none_or(|name| it.interface == name);
        is_named && netstacks.contains(&it.netstack) && families.contains(&it.is_v6)
    };
    let mut clients: Vec<_> = addrs.into_iter().filter_map(client).filter(wanted).collect();
    // What routers and a server have given has a row of its own for each address, and one client.
    clients.dedup_by(|one, other| one.name == other.name);
    if json {
        return session.json("clients", &clients, false);
    }
    if !clients.is_empty() {
        writeln!(session.out, "Interface  State         Sent  Recv  Declined  Flags")?;
    }
    for it in &clients {
        let LeaseInfo { state, sent, received, declined, .. } = &it.lease;
        let line = format!(
            "{:<10} {state:<12} {sent:>5} {received:>5} {declined:>9}  {}{}",
            it.interface,
            if it.is_v6 { "" } else { "[V4] " },
            if it.lease.primary { "[PRIMARY] " } else { "" },
        );
        writeln!(session.out, "{}", line.trim_end())?;
        if let Some(began) = it.lease.began {
            let [began, expires, renews] = [Some(began), it.lease.expires, it.lease.renews].map(time);
            writeln!(session.out, "(Began, Expires, Renew) = ({began}, {expires}, {renews})")?;
        }
    }
    Ok(())
}

fn client(addr: AddrInfo) -> Option<Client> {
    Some(Client {
        interface: addr.name.interface().to_owned(),
        is_v6: addr.kind == "addrconf",
        lease: addr.lease?,
        name: addr.name,
        netstack: addr.netstack,
    })
}

/// `11/25/2026 20:41`, of UTC.
fn time(seconds: Option<u64>) -> String {
    let Some(seconds) = seconds else { return "Never".to_owned() };
    let text = utc(seconds);
    let (date, clock) = text.split_once('T').unwrap_or_default();
    let (year, day) = date.split_once('-').unwrap_or_default();
    format!("{}/{year} {}", day.replace('-', "/"), clock.get(..5).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_originals() {
        assert_eq!(time(Some(1_763_757_662)), "11/21/2025 20:41");
        assert_eq!(time(None), "Never");
    }
}
