//! The paths of the interface, and where its socket is. A name follows its collection's path after a slash.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What runs, and whether all is well.
pub const STATUS: &str = "/v1/status";
/// The whole configuration: read, or replaced.
pub const MODEL: &str = "/v1/model";
/// What applying a configuration would do.
pub const PLAN: &str = "/v1/plan";
/// Links of every class.
pub const LINKS: &str = "/v1/links";
/// Properties of all links.
pub const LINK_PROPS: &str = "/v1/link-props";
/// VNICs.
pub const VNICS: &str = "/v1/vnics";
/// Tunnels.
pub const IPTUNS: &str = "/v1/iptuns";
/// Virtual switches.
pub const ETHERSTUBS: &str = "/v1/etherstubs";
/// Wires.
pub const WIRES: &str = "/v1/wires";
/// Flows.
pub const FLOWS: &str = "/v1/flows";
/// Properties of all flows.
pub const FLOW_PROPS: &str = "/v1/flow-props";
/// Address objects.
pub const ADDRS: &str = "/v1/addrs";
/// Properties of address objects, whose names have a slash and so stand last.
pub const ADDR_PROPS: &str = "/v1/addrprops";
/// Leases of address objects.
pub const LEASES: &str = "/v1/leases";
/// IP interfaces.
pub const IFS: &str = "/v1/ifs";
/// Netstacks.
pub const NETSTACKS: &str = "/v1/netstacks";
/// Sockets, in pages.
pub const SOCKETS: &str = "/v1/sockets";
/// A process by its number: its sockets, explained.
pub const PROGRAMS: &str = "/v1/programs";
/// Traffic of links.
pub const LINK_STATS: &str = "/v1/stats/links";
/// Traffic of flows.
pub const FLOW_STATS: &str = "/v1/stats/flows";
/// What became of wires' frames.
pub const WIRE_STATS: &str = "/v1/stats/wires";
/// What links have carried over time.
pub const LINK_HISTORY: &str = "/v1/history/links";
/// What flows have carried over time.
pub const FLOW_HISTORY: &str = "/v1/history/flows";
/// Accounting of links and flows to a file.
pub const ACCOUNTING: &str = "/v1/accounting";
/// Frames that ended, by station and reason.
pub const DROPS: &str = "/v1/drops";
/// What the host offers, and what links and VNICs got of it.
pub const DOCTOR: &str = "/v1/doctor";
/// What passes a link or belongs to a flow, as a pcapng stream.
pub const CAPTURE: &str = "/v1/capture";
/// Frames followed on their way.
pub const TRACE: &str = "/v1/trace";
/// What steps cost.
pub const STEPS: &str = "/v1/steps";
/// The memory of lanes.
pub const MEMORY: &str = "/v1/memory";
/// The routing daemons of netstacks.
pub const FPM: &str = "/v1/fpm";
/// This interface as OpenAPI 3.1.
pub const OPENAPI: &str = "/v1/openapi.json";
/// Follows a link's or flow's name: its properties.
pub const PROPS: &str = "props";
/// Follows a netstack's name: its routes.
pub const ROUTES: &str = "routes";
/// Follows a netstack's name: its packet filter.
pub const FILTER: &str = "filter";
/// Follows a netstack's name: the pools that its packet filter's rules name.
pub const POOLS: &str = "pools";
/// Follows a netstack's name: its address translation.
pub const NAT: &str = "nat";
/// Follows a netstack's name: the limits of its address translation.
pub const NAT_LIMITS: &str = "nat/limits";
/// Follows a netstack's name: what its address translation has made.
pub const NAT_SESSIONS: &str = "nat/sessions";

/// The environment variable that names the socket.
pub const SOCKET_VARIABLE: &str = "FIRELANE_SOCKET";

/// Where the daemon listens and commands look: `explicit` if given, else `/run/firelane/api.sock` for root, else
/// below an ordinary user's `runtime_dir` (XDG_RUNTIME_DIR); nowhere if there is none.
pub fn socket_path(explicit: Option<&OsStr>, is_root: bool, runtime_dir: Option<&OsStr>) -> Option<PathBuf> {
    match explicit.filter(|path| !path.is_empty()) {
        Some(path) => Some(path.into()),
        None if is_root => Some("/run/firelane/api.sock".into()),
        None => {
            let dir = runtime_dir.map(Path::new).filter(|dir| dir.is_absolute())?;
            Some(dir.join("firelane/api.sock"))
        }
    }
}

/// Where commands look: there. But an ordinary user who names no socket and has no daemon means the system's, if there is one.
pub fn socket_to_ask(
    explicit: Option<&OsStr>,
    is_root: bool,
    runtime_dir: Option<&OsStr>,
    is_there: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let own = socket_path(explicit, is_root, runtime_dir);
    let is_named = explicit.is_some_and(|path| !path.is_empty());
    if is_named || own.as_deref().is_some_and(&is_there) {
        return own;
    }
    socket_path(None, true, None).filter(|system| is_there(system)).or(own)
}

/// Where preloaded programs find the daemon whose interface is at `socket`: beside it.
pub fn programs_socket(socket: &Path) -> PathBuf {
    socket.with_file_name("app.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_where_the_user_may_have_it() {
        let [explicit, dir] = ["/x/y", "/run/user/7"].map(OsStr::new);
        assert_eq!(socket_path(Some(explicit), true, None), Some("/x/y".into()));
        assert_eq!(socket_path(None, true, Some(dir)), Some("/run/firelane/api.sock".into()));
        assert_eq!(
            socket_path(Some(OsStr::new("")), false, Some(dir)),
            Some("/run/user/7/firelane/api.sock".into())
        );
        assert_eq!(socket_path(None, false, Some(OsStr::new("relative"))), None);
        assert_eq!(socket_path(None, false, None), None);
    }

    #[test]
    fn who_has_no_daemon_means_the_systems_if_there_is_one() {
        let (own, system) = ("/run/user/7/firelane/api.sock", "/run/firelane/api.sock");
        let ask = |explicit: Option<&str>, dir: Option<&str>, there: &[&str]| {
            let is_there = |path: &Path| there.contains(&path.to_str().unwrap());
            let found = socket_to_ask(explicit.map(OsStr::new), false, dir.map(OsStr::new), is_there);
            found.map(|path| path.to_str().unwrap().to_owned())
        };
        let dir = Some("/run/user/7");
        for (dir, there, found) in [
            (dir, &[own, system][..], Some(own)),
            (dir, &[system], Some(system)),
            (None, &[system], Some(system)),
            (dir, &[], Some(own)),
            (None, &[], None),
        ] {
            assert_eq!(ask(None, dir, there).as_deref(), found, "{dir:?} {there:?}");
            assert_eq!(ask(Some("/x/y"), dir, there).as_deref(), Some("/x/y"));
        }
    }
}
