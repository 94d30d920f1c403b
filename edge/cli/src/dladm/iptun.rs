//! `dladm` verbs of IP tunnels: `create-iptun`, `modify-iptun`, `delete-iptun`, `show-iptun`.

use std::net::IpAddr;

use firelane_api::{ApiError, Change, ChangeRequest, IptunChange, Status, set_vnic_prop};
use firelane_model::{Iptun, IptunType, Vnic};

use super::change::link_name;
use super::show::{only, style, which};
use super::{PROGRAM, temporary};
use crate::common::{Call, said_props};
use crate::ofmt::{Column, Table, col};
use crate::session::{Failure, Session, die_status};

const IPTUN: &[Column] =
    &[col("LINK", 16), col("TYPE", 6), col("FLAGS", 7), col("LOCAL", 20), col("REMOTE", 20)];

const CREATE: &str = "could not create tunnel";
const MODIFY: &str = "could not modify tunnel";
const DELETE: &str = "could not delete tunnel";

fn change(session: &mut Session<'_>, call: &Call<'_>, change: Change, what: &str) -> Result<(), Failure> {
    let request = ChangeRequest { temporary: temporary(call), change };
    session.api.change(&request).map_err(|error| die_status(what, &error))
}

/// create-iptun
pub(super) fn create(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "link")?;
    let failed = |error: ApiError| die_status(CREATE, &error);
    let word = call.args.value('T').ok_or_else(|| failed(Status::IptunTypeRequired.into()))?;
    let allowed = || IptunType::ALL.map(IptunType::word).join(", ");
    let wrong = || failed(ApiError::new(Status::IptunType, "-T", word, allowed()));
    let kind = IptunType::from_word(word).ok_or_else(wrong)?;
    let IptunChange { local, remote } = ends(call, CREATE)?;
    let mut vnic = Vnic::of_tunnel(Iptun { local, remote, ..Iptun::new(kind) });
    for change in &said_props(call, "link property specified")? {
        set_vnic_prop(&mut vnic, change).map_err(failed)?;
    }
    change(session, call, Change::CreateIptun(name, vnic), CREATE)
}

/// modify-iptun
pub(super) fn modify(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "link")?;
    let asked = ends(call, MODIFY)?;
    if asked == IptunChange::default() {
        return Err(call.misused());
    }
    change(session, call, Change::ModifyIptun(name, asked), MODIFY)
}

/// delete-iptun
pub(super) fn delete(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    call.no_root()?;
    let name = link_name(call.operand()?, "link")?;
    change(session, call, Change::DeleteIptun(name), DELETE)
}

/// The addresses of `-a local=addr,remote=addr`.
fn ends(call: &Call<'_>, what: &str) -> Result<IptunChange, Failure> {
    let mut ends = IptunChange::default();
    for word in call.args.values('a').flat_map(|text| text.split(',')) {
        let read = |text: &str, status: Status, field: &str| -> Result<Option<IpAddr>, Failure> {
            let wrong = |_| die_status(what, &ApiError::new(status, field, text, "an IP address"));
            text.parse().map(Some).map_err(wrong)
        };
        match word.split_once('=') {
            Some(("local", text)) => ends.local = read(text, Status::BadIptunLocal, "local")?,
            Some(("remote", text)) => ends.remote = read(text, Status::BadIptunRemote, "remote")?,
            _ => {
                let error = ApiError::new(Status::BadArg, "-a", word, "local=addr and remote=addr");
                return Err(die_status(what, &error));
            }
        }
    }
    Ok(ends)
}

/// show-iptun
pub(super) fn show(session: &mut Session<'_>, call: &Call<'_>) -> Result<(), Failure> {
    let name = call.optional_operand()?;
    let mut tunnels = session.api.iptuns(which(call))?;
    only(&mut tunnels, name, |tunnel| tunnel.name.as_str(), "invalid iptun name '{}'")?;
    if call.args.has('j') {
        return session.json("iptuns", &tunnels, false);
    }
    let mut table = Table::open(session, PROGRAM, IPTUN, "link,type,flags,local,remote", style(call))?;
    for it in &tunnels {
        let end = |end: Option<IpAddr>| end.map(|end| end.to_string()).unwrap_or_default();
        let Iptun { kind, local, remote, .. } = it.tunnel;
        // The flags of the original tell of IPsec policy and of tunnels that nobody asked for; neither exists here.
        let row = [it.name.to_string(), kind.word().to_owned(), String::new(), end(local), end(remote)];
        table.row(session, &row)?;
    }
    Ok(())
}
