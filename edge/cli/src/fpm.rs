//! `firelane show fpm`: the routing daemons of netstacks, and what was counted of what they say.

use firelane_api::FpmInfo;

use crate::ofmt::{Column, Form, col};
use crate::own::{Refused, table};
use crate::session::{Session, die};

/// What `show fpm` is asked.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// One netstack instead of all
    netstack: Option<String>,
    /// What was refused, by reason
    #[arg(short, long)]
    refused: bool,
    #[command(flatten)]
    form: Form,
}

const DAEMONS: &[Column] = &[
    col("NETSTACK", 12),
    col("STATE", 10),
    col("PEER", 20),
    col("LISTEN", 20),
    col("NAMESPACE", 12),
    col("SESSIONS", 9),
    col("TURNEDAWAY", 11),
    col("MESSAGES", 11),
    col("BYTES", 13),
    col("ROUTES", 9),
    col("STALE", 9),
    col("UNRESOLVED", 11),
    col("INSTALLED", 10),
    col("NEXTHOPS", 9),
    col("SWEPT", 9),
    col("REFUSED", 9),
    col("FAULT", 40),
];

const REFUSED: &[Column] = &[col("NETSTACK", 12), col("REASON", 16), col("MESSAGES", 11)];

/// Shows them.
pub(crate) fn run(session: &mut Session<'_>, options: &Options) -> Result<(), Refused> {
    let named = |it: &FpmInfo| options.netstack.as_ref().is_none_or(|name| it.netstack.as_str() == name);
    let shown: Vec<FpmInfo> = session.api.fpm()?.into_iter().filter(named).collect();
    if let (Some(name), true) = (&options.netstack, shown.is_empty()) {
        return Err(die(format!("netstack {name} has no fpm: see firelane.toml(5)")).into());
    }
    if options.form.json {
        return Ok(session.json("fpm", &shown, false)?);
    }
    if options.refused {
        return refused(session, &shown, &options.form);
    }
    let fields = "netstack,state,peer,sessions,messages,routes,stale,unresolved,refused";
    let mut table = table(session, &options.form, DAEMONS, fields)?;
    for it in shown {
        let refused: u64 = it.refused.iter().map(|it| it.messages).sum();
        let row = [
            it.netstack.to_string(),
            it.state,
            it.peer.unwrap_or_default(),
            it.listen,
            it.namespace.unwrap_or_default(),
            it.sessions.to_string(),
            it.turned_away.to_string(),
            it.messages.to_string(),
            it.bytes.to_string(),
            it.routes.to_string(),
            it.stale.to_string(),
            it.unresolved.to_string(),
            it.installed.to_string(),
            it.next_hops.to_string(),
            it.swept.to_string(),
            refused.to_string(),
            it.fault.unwrap_or_default(),
        ];
        table.row(session, &row)?;
    }
    Ok(())
}

/// The reasons for which anything was refused.
fn refused(session: &mut Session<'_>, shown: &[FpmInfo], form: &Form) -> Result<(), Refused> {
    let mut table = table(session, form, REFUSED, "netstack,reason,messages")?;
    for it in shown {
        for refused in it.refused.iter().filter(|refused| refused.messages > 0) {
            let row = [it.netstack.to_string(), refused.reason.clone(), refused.messages.to_string()];
            table.row(session, &row)?;
        }
    }
    Ok(())
}
