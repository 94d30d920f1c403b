//! `firelane doctor`: what this host offers, what links and VNICs got of it, and why it was not more.
//!
//! Called by `host.rs`. Nothing is changed by looking; a device or a socket that is opened for that is closed again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use firelane::{probe_afxdp, probe_door};
use firelane_api::{Finding, FindingState};
use firelane_model::{LinkName, Slice};
use rustix::thread::CapabilitySet;

use crate::text::plain;
use crate::works::Works;

/// With fewer open files than this a daemon of many programs runs out: each socket of theirs has one.
const FILES_WANTED: u64 = 16_384;
/// Where it is tried whether programs can be loaded; nothing is attached.
const PROBED: &str = "lo";

/// How many lanes there are that all share, and whether the daemon has chosen it (`lanes = "auto"`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) running: usize,
    pub(crate) are_chosen: bool,
}

/// Looks at everything. `returned` is what lanes came back to, `faults` what is wrong with interfaces, `problems` what the configuration asks for in vain.
pub(crate) fn examine(
    works: &Works,
    lanes: Lanes,
    returned: &[String],
    mut faults: BTreeMap<LinkName, String>,
    problems: &[String],
) -> Vec<Finding> {
    let mut findings = vec![kernel(), cpus(cpu_count(), lanes, &works.engine.lane_cpus())];
    findings.extend(returned.iter().map(|it| finding("cpus", FindingState::Note, it.clone())));
    findings.extend([
        slices(&works.engine.lane_slices()),
        tap(may_make_interfaces(), fs::File::options().read(true).write(true).open("/dev/net/tun").map(drop)),
        door(probe_door(), &works.doorless().collect::<Vec<_>>()),
        afxdp(),
        files(),
    ]);
    for (name, lower) in &works.links {
        let Some(interface) = &lower.nic else { continue };
        let fault = faults.remove(name);
        let (cut_off, renamed) = (interface.cut_off(), interface.renamed());
        let state = match &fault {
            Some(_) => FindingState::Fail,
            None if interface.detour().is_some() || cut_off.is_some() || renamed.is_some() => {
                FindingState::Note
            }
            None => FindingState::Ok,
        };
        let told = [Some(interface.how()), fault, cut_off, renamed];
        let detail = told.into_iter().flatten().collect::<Vec<_>>().join("; ");
        findings.push(finding(&format!("link {name}"), state, detail));
    }
    let others = faults.into_iter();
    findings.extend(others.map(|(name, fault)| finding(&format!("link {name}"), FindingState::Fail, fault)));
    findings.extend(works.device_detours().map(|detail| finding("vnic", FindingState::Note, detail)));
    let problems = problems.iter().map(|it| finding("configuration", FindingState::Fail, it.clone()));
    findings.extend(problems);
    findings
}

fn finding(check: &str, state: FindingState, detail: String) -> Finding {
    Finding { check: check.to_owned(), state, detail }
}

fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    finding("kernel", FindingState::Ok, format!("Linux {}", release.trim()))
}

fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What the lanes have of the CPUs. That there are fewer is said with its reason: it is how it should be.
fn cpus(cpus: usize, lanes: Lanes, of_lanes: &[Vec<usize>]) -> Finding {
    let Lanes { running, are_chosen } = lanes;
    let counted =
        |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let mut text = format!("{} and {}", counted(cpus, "CPU"), counted(running, "lane"));
    let bound: Vec<String> = of_lanes.iter().filter(|it| it.len() == 1).map(|it| it[0].to_string()).collect();
    if bound.len() == running && running > 0 {
        let how = if running == 1 { " on CPU " } else { ", in their order on " };
        text += &format!("{how}{}", bound.join(","));
    }
    if running > cpus {
        let text = format!("{text}: they share the CPUs");
        return finding("cpus", FindingState::Note, text);
    }
    text += match (are_chosen, cpus - running) {
        (true, 1) => ": a CPU is left to programs (lanes = auto)",
        (true, _) => " (lanes = auto)",
        (false, _) => "",
    };
    finding("cpus", FindingState::Ok, text)
}

/// How long lanes run at a time where others want their CPUs.
fn slices(of_lanes: &[Duration]) -> Finding {
    match of_lanes.iter().max() {
        Some(&longest) if !longest.is_zero() => {
            let slice = Slice::Of(longest);
            finding("slice", FindingState::Ok, format!("lanes run for {slice} at a time where others want their CPUs"))
        }
        _ => finding(
            "slice",
            FindingState::Note,
            "the kernel has one for all threads (before Linux 6.12): beside programs that compute, lanes wait longer".to_owned(),
        ),
    }
}

fn may_make_interfaces() -> bool {
    let held = rustix::thread::capabilities(None);
    held.is_ok_and(|held| held.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Whether VNICs get TAPs. Anybody may open the device; an interface takes the right to make one.
fn tap(may_make: bool, opened: io::Result<()>) -> Finding {
    match opened {
        _ if !may_make => {
            let detail = "this daemon has no CAP_NET_ADMIN: VNICs with tap cannot be made, neither as TAPs nor as veth pairs";
            finding("tap", FindingState::Note, detail.to_owned())
        }
        Ok(()) => finding("tap", FindingState::Ok, "/dev/net/tun may be opened".to_owned()),
        Err(error) => {
            let detail =
                format!("/dev/net/tun: {}; VNICs get veth pairs instead, which are slower", plain(&error));
            finding("tap", FindingState::Note, detail)
        }
    }
}

/// Whether floods behind a limit end on the CPU of who sends them.
fn door(tried: io::Result<()>, open: &[&str]) -> Finding {
    const ELSE: &str = "what a limit drops of a flood is read by its lane first, which costs the lane's CPU";
    match (tried, open) {
        (Err(error), _) => {
            let detail = format!("no program can be loaded for TAPs: {}; {ELSE}", plain(&error));
            finding("door", FindingState::Note, detail)
        }
        (Ok(()), [_, ..]) => {
            let detail = format!("the kernel took no program for the TAPs {}; {ELSE}", open.join(", "));
            finding("door", FindingState::Note, detail)
        }
        (Ok(()), []) => {
            let detail = "a program at each TAP ends floods where they are sent".to_owned();
            finding("door", FindingState::Ok, detail)
        }
    }
}

fn afxdp() -> Finding {
    let probed = probe_afxdp(PROBED).map_err(|error| plain(&error));
    match probed.and_then(|it| it.afxdp.map_err(|why| why.to_string())) {
        Ok(()) => {
            let detail = "sockets and programs can be made; a link's line says what its interface offers";
            finding("afxdp", FindingState::Ok, detail.to_owned())
        }
        Err(why) => {
            let detail = format!("{why}; links of kind nic get packet sockets instead, which are slower");
            finding("afxdp", FindingState::Note, detail)
        }
    }
}

fn files() -> Finding {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match most.filter(|&most| most < FILES_WANTED) {
        Some(most) => {
            let detail =
                format!("{most} may be open, each socket of a program is one; LimitNOFILE= or ulimit -n");
            finding("files", FindingState::Note, detail)
        }
        None => {
            let most = most.map_or("any number".to_owned(), |most| most.to_string());
            finding("files", FindingState::Ok, format!("{most} may be open"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_may_make_no_interface_is_not_promised_taps() {
        let refused = || Err(io::Error::from_raw_os_error(13));
        assert_eq!(tap(true, Ok(())).state, FindingState::Ok);
        assert!(tap(true, refused()).detail.contains("VNICs get veth pairs instead"));
        for opened in [Ok(()), refused()] {
            let Finding { state, detail, .. } = tap(false, opened);
            assert!(state == FindingState::Note && detail.contains("CAP_NET_ADMIN"), "{detail}");
        }
    }

    #[test]
    fn fewer_lanes_than_cpus_are_told_with_their_reason() {
        let told = |all, running, are_chosen, of_lanes: &[usize]| {
            let bound: Vec<_> = of_lanes.iter().map(|&cpu| vec![cpu]).collect();
            let Finding { check, state, detail } = cpus(all, Lanes { running, are_chosen }, &bound);
            assert_eq!(check, "cpus");
            (state, detail)
        };
        let ok = |text: &str| (FindingState::Ok, text.to_owned());
        assert_eq!(told(2, 1, true, &[]), ok("2 CPUs and 1 lane: a CPU is left to programs (lanes = auto)"));
        assert_eq!(told(8, 7, true, &[]), ok("8 CPUs and 7 lanes: a CPU is left to programs (lanes = auto)"));
        assert_eq!(told(1, 1, true, &[]), ok("1 CPU and 1 lane (lanes = auto)"));
        assert_eq!(told(64, 48, true, &[]), ok("64 CPUs and 48 lanes (lanes = auto)"));
        assert_eq!(told(2, 1, false, &[1]), ok("2 CPUs and 1 lane on CPU 1"));
        assert_eq!(told(4, 2, false, &[3, 1]), ok("4 CPUs and 2 lanes, in their order on 3,1"));
        let (state, detail) = told(2, 4, false, &[]);
        assert_eq!((state, detail.as_str()), (FindingState::Note, "2 CPUs and 4 lanes: they share the CPUs"));
    }

    #[test]
    fn a_door_that_cannot_be_hung_is_told_with_its_reason() {
        let shown = |tried, open: &[&str]| {
            let Finding { check, state, detail } = door(tried, open);
            assert_eq!(check, "door");
            (state, detail)
        };
        assert_eq!(shown(Ok(()), &[]).0, FindingState::Ok);
        let (state, detail) = shown(Err(io::Error::from_raw_os_error(1)), &["alice0"]);
        assert_eq!(state, FindingState::Note);
        assert!(detail.starts_with("no program can be loaded for TAPs: "), "{detail}");
        assert!(
            detail.to_lowercase().contains("not permitted") && detail.contains("the lane's CPU"),
            "{detail}"
        );
        let (state, detail) = shown(Ok(()), &["alice0", "bob0"]);
        assert!(state == FindingState::Note && detail.contains("the TAPs alice0, bob0;"), "{detail}");
    }
}
