//! `firelane capture`: what passes a link or belongs to a flow, as pcapng into a file or a pipe.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use firelane_api::{CaptureOf, CaptureRequest};

use crate::EXIT_USAGE;
use crate::common::{number, system_message};
use crate::own::Refused;
use crate::session::{Session, die};

/// What is captured, and where it goes.
#[derive(clap::Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("of").args(["link", "flow"]).required(true))]
pub(crate) struct Options {
    /// A VNIC, or a link or etherstub with all that is over it
    #[arg(short, long)]
    link: Option<String>,
    /// A flow instead of a link
    #[arg(short, long)]
    flow: Option<String>,
    /// The pcapng file; - is the standard output, for tcpdump -r - or wireshark -k -i -
    #[arg(short, long, default_value = "-")]
    write: PathBuf,
    /// End after so many frames
    #[arg(short, long, value_parser = |text: &str| number(text, 1..=u64::MAX))]
    count: Option<u64>,
    /// How many bytes of each frame are kept
    #[arg(short, long, value_parser = |text: &str| number::<u32>(text, 64..=65_549))]
    snaplen: Option<u32>,
}

/// Captures until `count` frames are written, the reader goes away, or the command is interrupted.
pub(crate) fn run(session: &mut Session<'_>, options: &Options) -> Result<(), Refused> {
    let bad = |what: &str, name: &str, error: &dyn std::fmt::Display| {
        Refused(die(format!("{what} {name:?}: {error}")), EXIT_USAGE)
    };
    let of = match (&options.link, &options.flow) {
        (Some(name), _) => CaptureOf::Link(name.parse().map_err(|e| bad("link", name, &e))?),
        (None, Some(name)) => CaptureOf::Flow(name.parse().map_err(|e| bad("flow", name, &e))?),
        (None, None) => return Err(Refused(die("a link (-l) or a flow (-f) is needed"), EXIT_USAGE)),
    };
    let mut wanted = CaptureRequest::new(of);
    wanted.count = options.count;
    wanted.snap = options.snaplen.unwrap_or(wanted.snap);
    let mut failed = None;
    if options.write.as_os_str() != "-" {
        let name = options.write.display();
        let cannot = |error: std::io::Error| Refused(die(format!("{name}: {}", system_message(&error))), 1);
        // The file is made before anything is captured: one that cannot be is no capture.
        let mut file = File::create(&options.write).map_err(cannot)?;
        session.api.capture(&wanted, &mut |bytes| {
            failed = file.write_all(bytes).err();
            failed.is_none()
        })?;
        return failed.map_or(Ok(()), |error| Err(cannot(error)));
    }
    if session.rows.is_some() {
        let what = "a terminal cannot show pcapng: -w FILE, or | tcpdump -r -";
        return Err(Refused(die(what), EXIT_USAGE));
    }
    let Session { api, out, .. } = session;
    api.capture(&wanted, &mut |bytes| {
        failed = out.write_all(bytes).and_then(|()| out.flush()).err();
        failed.is_none()
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}
