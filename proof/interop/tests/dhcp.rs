//! Addresses from a real server: Debian's dnsmasq in a tenant's namespace, the client in the daemon.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Background, Daemon, Sandbox, binary};
use serde_json::Value;

/// A switch with a tenant, in whose namespace the server is, and a netstack whose VNIC wants an address.
const HOST: &str = "[etherstub.vswitch1]\n\
    [vnic.srv0]\nover = \"vswitch1\"\n\
    tap = { namespace = \"srv\", addresses = [\"10.7.0.1/24\", \"fd00:7::1/64\"] }\n\
    [vnic.web0]\nover = \"vswitch1\"\nmac = \"02:08:20:00:00:77\"\nnetstack = \"default\"\n\
    [netstack.default]\n";

/// What something takes at the most.
const PATIENCE: Duration = Duration::from_secs(20);

/// dnsmasq in the namespace `srv`, which ends with its owner.
pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        let folder = sandbox.folder();
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let mut command = sandbox.command("ip");
        command.args(["netns", "exec", "srv", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null"]);
        command.args(["--user=root", "--group=root", "--port=0", "--interface=srv0", "--bind-interfaces"]);
        command.args(["--no-ping", "--log-facility=-", "--log-dhcp", "--dhcp-authoritative"]);
        command.arg(format!("--dhcp-leasefile={}", file("dnsmasq.leases"))).args(args);
        let log = std::fs::File::create(file("dnsmasq.log")).expect("writable");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = Self(command.spawn().expect("dnsmasq is installed (make test does it)"));
        until("dnsmasq starts", || log_of(sandbox).contains("started, version").then_some(()));
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn log_of(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.folder().join("dnsmasq.log")).unwrap_or_default()
}

/// Waits until something is true, and gives what it is.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start<'a>(sandbox: &'a Sandbox, more: &str) -> Daemon<'a> {
    let path = sandbox.folder().join("host.toml");
    std::fs::write(&path, format!("{HOST}{more}")).expect("the sandbox's folder is writable");
    Daemon::start(sandbox, Path::new(&path))
}

/// The row of an address object.
fn row(daemon: &Daemon<'_>, name: &str) -> Value {
    let text = daemon.firelane(&["ipadm", "show-addr", "-j"]).expect_success();
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let rows = all["addresses"].as_array().expect("a list");
    rows.iter().find(|row| row["name"] == name).cloned().unwrap_or_default()
}

/// Waits until an address that begins so is leased and in use, and gives its row.
#[track_caller]
pub(crate) fn bound(daemon: &Daemon<'_>, begin: &str) -> Value {
    until("a lease", || {
        let text = daemon.firelane(&["ipadm", "show-addr", "-j"]).expect_success();
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let rows = all["addresses"].as_array().expect("a list").clone();
        let is_it = |row: &Value| row["addr"].as_str().is_some_and(|it| it.starts_with(begin));
        let row = rows.into_iter().find(is_it)?;
        (row["lease"]["state"] == "BOUND" && row["state"] == "ok").then_some(row)
    })
}

pub(crate) fn routes(daemon: &Daemon<'_>) -> String {
    daemon.firelane(&["netstat", "-rn"]).expect_success()
}

fn ping(sandbox: &Sandbox, to: &str) -> bool {
    sandbox.run(Some("srv"), "ping", &["-c", "1", "-W", "2", to]).status.success()
}

/// Waits until an address is in use: somebody may have to be asked first whether it is his (RFC 4862 §5.4).
fn answers(sandbox: &Sandbox, address: &str) {
    until(&format!("{address} answers"), || ping(sandbox, address).then_some(()));
}

const RANGE: &[&str] = &[
    "--dhcp-range=10.7.0.100,10.7.0.110,255.255.255.0,1h",
    "--dhcp-option=option:dns-server,10.7.0.53",
    "--dhcp-option=option:domain-search,lab.example",
];

#[test]
fn a_lease_brings_address_route_and_resolvers_and_goes_back() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let _server = Server::start(&sandbox, RANGE);
    let created =
        daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-h", "web", "-w", "20", "web0/v4"]);
    created.expect_success();
    let got = row(&daemon, "web0/v4");
    let addr = got["addr"].as_str().expect("an address").to_owned();
    assert!(addr.starts_with("10.7.0.1") && addr.ends_with("/24"), "{got}");
    assert_eq!((&got["type"], &got["state"]), (&"dhcp".into(), &"ok".into()), "{got}");
    let lease = &got["lease"];
    assert_eq!((&lease["state"], &lease["server"]), (&"BOUND".into(), &"10.7.0.1".into()), "{got}");
    assert_eq!(got["resolvers"]["name_servers"], serde_json::json!(["10.7.0.53"]), "{got}");
    assert_eq!(got["resolvers"]["domains"], serde_json::json!(["lab.example"]), "{got}");
    let table = daemon.firelane(&["ipadm", "show-addr", "web0/v4"]).expect_success();
    assert!(table.contains(&format!("web0/v4           dhcp     ok           {addr}")), "{table}");
    let host = addr.trim_end_matches("/24");
    answers(&sandbox, host);
    let table = routes(&daemon);
    assert!(table.lines().any(|line| line.starts_with("default ") && line.contains("10.7.0.1 ")), "{table}");
    let refused = daemon.firelane(&["route", "-N", "default", "-p", "delete", "default", "10.7.0.1"]);
    assert_eq!(refused.code(), 1, "{refused:?}");
    let why = "delete net default: gateway 10.7.0.1: a DHCP server gave it on web0";
    assert!(refused.stderr.starts_with(why), "{refused:?}");
    assert_eq!(routes(&daemon), table, "it is left alone");
    assert!(log_of(&sandbox).contains("client provides name: web"), "{}", log_of(&sandbox));

    // A request that was repeated has more than one answer.
    let answers = || log_of(&sandbox).matches("DHCPACK(srv0)").count();
    let before = answers();
    daemon.firelane(&["ipadm", "refresh-addr", "web0/v4"]).expect_success();
    until("it is renewed", || (answers() > before).then_some(()));

    daemon.firelane(&["ipadm", "delete-addr", "-r", "web0/v4"]).expect_success();
    until("the server hears of it", || log_of(&sandbox).contains("DHCPRELEASE(srv0)").then_some(()));
    assert!(!ping(&sandbox, host), "nobody has it any more");
    assert!(!routes(&daemon).contains("default "), "{}", routes(&daemon));
    assert_eq!(row(&daemon, "web0/v4"), Value::Null);
}

#[test]
fn without_a_server_the_command_gives_up_and_the_client_does_not() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let refused = daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "1", "web0/v4"]);
    assert_eq!((refused.code(), refused.stderr.lines().count()), (1, 1), "{}", refused.stderr);
    assert!(refused.stderr.contains("Operation timed out"), "{}", refused.stderr);
    let waits = row(&daemon, "web0/v4");
    assert_eq!((&waits["state"], &waits["lease"]["state"]), (&"down".into(), &"SELECTING".into()), "{waits}");
    let table = daemon.firelane(&["ipadm", "show-addr", "web0/v4"]).expect_success();
    assert!(table.contains("web0/v4           dhcp     down         ?"), "{table}");
    let _server = Server::start(&sandbox, RANGE);
    until("a lease comes all the same", || (row(&daemon, "web0/v4")["state"] == "ok").then_some(()));
}

#[test]
fn an_address_that_a_station_has_is_declined_and_another_taken() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    sandbox.run(Some("srv"), "ip", &["address", "add", "10.7.0.100/24", "dev", "srv0"]).expect_success();
    // The server would give this one first.
    let args = ["--dhcp-range=10.7.0.100,10.7.0.101,255.255.255.0,1h", "--dhcp-sequential-ip"];
    let _server = Server::start(&sandbox, &args);
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "0", "web0/v4"]);
    let got = until("another address", || {
        let got = row(&daemon, "web0/v4");
        (got["state"] == "ok").then_some(got)
    });
    let log = log_of(&sandbox);
    assert_eq!(got["addr"], "10.7.0.101/24", "{log}");
    assert!(log.contains("DHCPDECLINE(srv0) 10.7.0.100"), "{log}");
}

/// A server that leases what the operator has given, be it on purpose, takes nothing away.
#[test]
fn an_address_that_the_netstack_has_is_declined_and_stays_its_owners() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "[netstack.default.addresses]\n\"web0/fixed\" = \"10.7.0.9/24\"\n");
    let args = [RANGE, &["--dhcp-host=02:08:20:00:00:77,10.7.0.9"]].concat();
    let _server = Server::start(&sandbox, &args);
    answers(&sandbox, "10.7.0.9");
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "0", "web0/v4"]);
    until("it is declined", || log_of(&sandbox).contains("DHCPDECLINE(srv0) 10.7.0.9").then_some(()));
    daemon.firelane(&["ipadm", "delete-addr", "web0/v4"]).expect_success();
    assert_eq!(row(&daemon, "web0/fixed")["state"], "ok");
    assert!(ping(&sandbox, "10.7.0.9"), "it is the operator's");
}

#[test]
fn a_lease_survives_the_daemon_and_its_server_may_refuse_it() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "[netstack.default.addresses]\n\"web0/v4\" = \"dhcp\"\n");
    let server = Server::start(&sandbox, RANGE);
    let bound = |daemon: &Daemon<'_>| {
        until("a lease", || {
            let got = row(daemon, "web0/v4");
            (got["lease"]["state"] == "BOUND").then(|| got["addr"].as_str().unwrap_or_default().to_owned())
        })
    };
    let before = bound(&daemon);
    daemon.kill();
    drop(server);
    // The namespace stays where it was, and the server begins again without its own memory.
    let daemon = Daemon::start_with(&sandbox, &[]);
    let server = Server::start(&sandbox, RANGE);
    assert_eq!(bound(&daemon), before);
    let log = log_of(&sandbox);
    assert!(log.contains("DHCPREQUEST(srv0)") && !log.contains("DHCPDISCOVER"), "asked for as before: {log}");

    // Now it serves another part of the network, and says so when it is asked.
    drop(server);
    let moved = ["--dhcp-range=10.7.0.200,10.7.0.210,255.255.255.0,1h"];
    std::fs::remove_file(sandbox.folder().join("dnsmasq.leases")).expect("the server's memory");
    let _server = Server::start(&sandbox, &moved);
    daemon.firelane(&["ipadm", "refresh-addr", "web0/v4"]).expect_success();
    let after = until("another address", || Some(bound(&daemon)).filter(|addr| *addr != before));
    assert!(after.starts_with("10.7.0.2"), "{after}");
    assert!(log_of(&sandbox).contains("DHCPNAK(srv0)"), "{}", log_of(&sandbox));
    let old = before.trim_end_matches("/24");
    assert!(!ping(&sandbox, old) && ping(&sandbox, after.trim_end_matches("/24")));
}

#[test]
fn routers_give_addresses_a_way_out_and_resolvers() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let said = [
        "--enable-ra",
        "--dhcp-range=fd00:7::,ra-only,64,1h",
        "--dhcp-option=option6:dns-server,[fd00:7::53]",
    ];
    let _server = Server::start(&sandbox, &said);
    daemon.firelane(&["ipadm", "create-addr", "-T", "addrconf", "web0/auto"]).expect_success();
    let addresses =
        || daemon.firelane(&["ipadm", "show-addr", "-p", "-o", "type,state,addr", "web0/"]).expect_success();
    let global = until("an address of the router's prefix", || {
        let table = addresses();
        let line = table.lines().find(|line| line.starts_with("addrconf:ok:fd00"))?.to_owned();
        // Colons of values stand behind a backslash.
        Some(line.trim_start_matches("addrconf:ok:").replace('\\', "").trim_end_matches("/64").to_owned())
    });
    assert!(addresses().contains("addrconf:ok:fe80"), "{}", addresses());
    answers(&sandbox, &global);
    let table = daemon.firelane(&["netstat", "-rn", "-f", "inet6"]).expect_success();
    assert!(table.lines().any(|line| line.starts_with("default ") && line.contains("fe80::")), "{table}");
    let refused = daemon.firelane(&["route", "delete", "-inet6", "default"]).stderr;
    assert!(refused.starts_with("delete net default: a router advertises it on web0"), "{refused}");
    until("the name server", || {
        let known = &row(&daemon, "web0/auto")["resolvers"]["name_servers"];
        (*known == serde_json::json!(["fd00:7::53"])).then_some(())
    });
    daemon.firelane(&["ipadm", "delete-addr", "web0/auto"]).expect_success();
    assert!(!ping(&sandbox, &global), "nobody has it any more");
}

#[test]
fn a_router_sends_a_host_to_the_server_for_its_address() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let said = [
        "--enable-ra",
        "--dhcp-range=fd00:7::100,fd00:7::1ff,64,1h",
        "--dhcp-option=option6:dns-server,[fd00:7::53]",
        "--dhcp-option=option6:domain-search,lab.example",
    ];
    let server = Server::start(&sandbox, &said);
    daemon
        .firelane(&["ipadm", "create-addr", "-T", "addrconf", "-p", "stateless=no", "web0/auto"])
        .expect_success();
    let got = bound(&daemon, "fd00:7::1");
    let log = log_of(&sandbox);
    for word in ["DHCPSOLICIT(srv0)", "DHCPADVERTISE(srv0)", "DHCPREQUEST(srv0)", "DHCPREPLY(srv0)"] {
        assert!(log.contains(word), "{word}: {log}");
    }
    assert_eq!((&got["name"], &got["type"]), (&"web0/auto".into(), &"addrconf".into()), "{got}");
    assert_eq!(got["resolvers"]["name_servers"], serde_json::json!(["fd00:7::53"]), "{got}");
    assert_eq!(got["resolvers"]["domains"], serde_json::json!(["lab.example"]), "{got}");
    assert!(got["lease"]["server"].as_str().is_some_and(|it| it.starts_with("fe80::")), "{got}");
    assert!(got["lease"]["expires"].is_u64(), "{got}");
    let addr = got["addr"].as_str().expect("an address").trim_end_matches("/128").to_owned();
    answers(&sandbox, &addr);

    daemon.firelane(&["ipadm", "refresh-addr", "web0/auto"]).expect_success();
    until("it is renewed", || log_of(&sandbox).contains("DHCPRENEW(srv0)").then_some(()));
    // Without its server's memory and after a restart the host asks for what it had.
    daemon.kill();
    drop(server);
    let daemon = Daemon::start_with(&sandbox, &[]);
    let _server = Server::start(&sandbox, &said);
    assert_eq!(bound(&daemon, "fd00:7::1")["addr"], got["addr"]);
    let log = log_of(&sandbox);
    assert!(log.contains("DHCPCONFIRM(srv0)") && !log.contains("DHCPSOLICIT"), "{log}");

    daemon.firelane(&["ipadm", "delete-addr", "-r", "web0/auto"]).expect_success();
    until("the server hears of it", || log_of(&sandbox).contains("DHCPRELEASE(srv0)").then_some(()));
    assert!(!ping(&sandbox, &addr), "nobody has it any more");
}

/// No rule names DHCP, and one takes all that is for the address: in Linux a client's own sockets stand beside the firewall.
#[test]
fn what_servers_answer_passes_the_netstacks_own_filter_and_translation() {
    let sandbox = Sandbox::new();
    let rules = "filter = [\"block in all\", \"pass out all keep state\", \"pass in proto 58 all\"]\n\
        nat = [\"rdr web0 10.7.0.0/24 -> 10.9.0.9\"]\n";
    let daemon = start(&sandbox, rules);
    let more = ["--enable-ra", "--dhcp-range=fd00:7::100,fd00:7::1ff,64,1h"];
    let _server = Server::start(&sandbox, &[RANGE, &more].concat());
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "20", "web0/v4"]).expect_success();
    daemon
        .firelane(&["ipadm", "create-addr", "-T", "addrconf", "-p", "stateless=no", "web0/auto"])
        .expect_success();
    bound(&daemon, "10.7.0.1");
    bound(&daemon, "fd00:7::1");
    let acks = || log_of(&sandbox).matches("DHCPACK(srv0)").count();
    let before = acks();
    daemon.firelane(&["ipadm", "refresh-addr", "web0/v4"]).expect_success();
    until("the server answers", || (acks() > before).then_some(()));
    bound(&daemon, "10.7.0.1");
}

/// What a server has given may be used on a protected link, and nothing else.
#[test]
fn a_protected_link_learns_what_its_user_is_given() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let said = [&["--enable-ra", "--dhcp-range=fd00:7::100,fd00:7::1ff,64,1h"], RANGE].concat();
    let _server = Server::start(&sandbox, &said);
    daemon.firelane(&["dladm", "set-linkprop", "-p", "protection=ip-nospoof", "web0"]).expect_success();
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "web0/four"]).expect_success();
    daemon
        .firelane(&["ipadm", "create-addr", "-T", "addrconf", "-p", "stateless=no", "web0/six"])
        .expect_success();
    for begin in ["10.7.0.1", "fd00:7::1"] {
        let row = bound(&daemon, begin);
        let address = row["addr"].as_str().expect("an address");
        answers(&sandbox, address.split('/').next().unwrap_or_default());
    }
    for (name, address) in [("web0/v4", "10.7.0.66/24"), ("web0/v6", "fd00:7::66/64")] {
        daemon.firelane(&["ipadm", "create-addr", "-T", "static", "-a", address, name]).expect_success();
        assert!(!ping(&sandbox, address.split('/').next().unwrap_or_default()), "{address} was not");
    }
}

#[test]
fn a_router_sends_a_host_to_the_server_for_the_rest_alone() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let said = [
        "--enable-ra",
        "--dhcp-range=fd00:7::,ra-stateless,64,1h",
        "--dhcp-option=option6:domain-search,rest.example",
    ];
    let _server = Server::start(&sandbox, &said);
    daemon.firelane(&["ipadm", "create-addr", "-T", "addrconf", "web0/auto"]).expect_success();
    until("what the server says", || {
        let known = row(&daemon, "web0/auto");
        let is_known = known["resolvers"]["domains"] == serde_json::json!(["rest.example"]);
        (is_known && known["lease"]["state"] == "INFORMED").then_some(())
    });
    let log = log_of(&sandbox);
    assert!(log.contains("DHCPINFORMATION-REQUEST(srv0)") && !log.contains("DHCPSOLICIT"), "{log}");
}

#[test]
fn an_operator_who_wants_no_server_asks_none() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let _server = Server::start(&sandbox, &["--enable-ra", "--dhcp-range=fd00:7::100,fd00:7::1ff,64,1h"]);
    let create = ["ipadm", "create-addr", "-T", "addrconf", "-p", "stateful=no", "web0/auto"];
    daemon.firelane(&create).expect_success();
    until("the router is heard", || {
        let table = daemon.firelane(&["netstat", "-rn", "-f", "inet6"]).expect_success();
        table.lines().any(|line| line.starts_with("default ")).then_some(())
    });
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!log_of(&sandbox).contains("DHCPSOLICIT"), "{}", log_of(&sandbox));
    let refused = daemon.firelane(&["ipadm", "refresh-addr", "web0/auto"]);
    assert!(refused.stderr.contains("Operation not supported"), "{}", refused.stderr);
}

#[test]
fn without_a_server_an_address_of_the_link_is_used_until_there_is_one() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    sandbox.run(Some("srv"), "ip", &["address", "add", "169.254.0.1/16", "dev", "srv0"]).expect_success();
    let create = ["ipadm", "create-addr", "-T", "dhcp", "-p", "linklocal=yes", "-w", "20", "web0/v4"];
    daemon.firelane(&create).expect_success();
    let got = row(&daemon, "web0/v4");
    let addr = got["addr"].as_str().expect("an address").to_owned();
    assert!(addr.starts_with("169.254.") && addr.ends_with("/16"), "{got}");
    assert_eq!((&got["state"], &got["lease"]["state"]), (&"ok".into(), &"SELECTING".into()), "{got}");
    answers(&sandbox, addr.trim_end_matches("/16"));
    // Another station takes it: it is left to him, and another one used.
    let own = addr.trim_end_matches("/16");
    sandbox.run(Some("srv"), "ip", &["address", "add", &format!("{own}/32"), "dev", "srv0"]).expect_success();
    let other = until("another address", || {
        // It asks for somebody who is not there, in its own name.
        sandbox.run(Some("srv"), "ping", &["-c", "1", "-W", "1", "-I", own, "169.254.0.99"]);
        let got = row(&daemon, "web0/v4");
        got["addr"].as_str().filter(|it| it.starts_with("169.254.") && *it != addr).map(str::to_owned)
    });
    let _server = Server::start(&sandbox, RANGE);
    until("a lease", || (row(&daemon, "web0/v4")["lease"]["state"] == "BOUND").then_some(()));
    assert!(!ping(&sandbox, other.trim_end_matches("/16")), "a host has one or the other (RFC 3927 §1.9)");
}

#[test]
fn a_static_address_hears_from_a_server_what_its_network_is_like() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "[netstack.default.addresses]\n\"web0/v4\" = \"10.7.0.9/24\"\n");
    let server = Server::start(&sandbox, RANGE);
    daemon.firelane(&["ipadm", "refresh-addr", "-i", "web0/v4"]).expect_success();
    let got = row(&daemon, "web0/v4");
    assert_eq!((&got["type"], &got["addr"]), (&"static".into(), &"10.7.0.9/24".into()), "{got}");
    let lease = &got["lease"];
    assert_eq!((&lease["state"], &lease["server"]), (&"INFORMED".into(), &"10.7.0.1".into()), "{got}");
    assert_eq!(got["resolvers"]["name_servers"], serde_json::json!(["10.7.0.53"]), "{got}");
    assert_eq!(got["resolvers"]["domains"], serde_json::json!(["lab.example"]), "{got}");
    let log = log_of(&sandbox);
    assert!(log.contains("DHCPINFORM(srv0) 10.7.0.9") && !log.contains("DHCPDISCOVER"), "{log}");
    assert!(!routes(&daemon).contains("default "), "its routes are the operator's: {}", routes(&daemon));
    let status = daemon.firelane(&["netstat", "-D"]).expect_success();
    assert!(status.contains("web0       INFORMED         1     1         0  [V4]"), "{status}");
    // The port is free again, for another question as for a client.
    daemon.firelane(&["ipadm", "refresh-addr", "-i", "web0/v4"]).expect_success();
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "20", "web0/more"]).expect_success();
    let refused = daemon.firelane(&["ipadm", "refresh-addr", "-i", "web0/v4"]);
    assert!(refused.stderr.contains("its lease says what the network is like"), "{}", refused.stderr);
    daemon.firelane(&["ipadm", "delete-addr", "web0/more"]).expect_success();
    drop(server);
    daemon.firelane(&["ipadm", "down-addr", "web0/v4"]).expect_success();
    assert_eq!(row(&daemon, "web0/v4")["lease"], Value::Null, "a question goes with its address");
}

/// What the interface answers at `path`.
fn ask(daemon: &Daemon<'_>, path: &str) -> Value {
    let socket = UnixStream::connect(daemon.runtime().join("api.sock"));
    let mut socket = socket.expect("the daemon listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("the daemon reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("text");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(body).expect("JSON")
}

/// Another switch with a server of its own, and a second interface of the netstack.
const SECOND: &str = "[etherstub.vswitch2]\n\
    [vnic.srv1]\nover = \"vswitch2\"\n\
    tap = { namespace = \"srv\", addresses = [\"10.8.0.1/24\"] }\n\
    [vnic.web1]\nover = \"vswitch2\"\nnetstack = \"default\"\n";

#[test]
fn the_primary_interfaces_lease_comes_first() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, SECOND);
    let both = [
        "--interface=srv1",
        "--dhcp-range=10.7.0.100,10.7.0.110,255.255.255.0,1h",
        "--dhcp-range=10.8.0.100,10.8.0.110,255.255.255.0,1h",
        "--dhcp-option=tag:srv0,option:dns-server,10.7.0.53",
        "--dhcp-option=tag:srv1,option:dns-server,10.8.0.53",
    ];
    let _server = Server::start(&sandbox, &both);
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "20", "web0/v4"]).expect_success();
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-1", "-w", "20", "web1/v4"]).expect_success();
    let defaults = |daemon: &Daemon<'_>| {
        let table = routes(daemon);
        let gateways = table.lines().filter(|line| line.starts_with("default "));
        gateways.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(defaults(&daemon).len(), 2, "{}", routes(&daemon));
    let is_primary = |daemon: &Daemon<'_>, name: &str| row(daemon, name)["lease"]["primary"] == true;
    assert_eq!((is_primary(&daemon, "web0/v4"), is_primary(&daemon, "web1/v4")), (false, true));
    let first_servers =
        |daemon: &Daemon<'_>| ask(daemon, "/v1/netstacks")[0]["resolvers"]["name_servers"].clone();
    assert_eq!(first_servers(&daemon), serde_json::json!(["10.8.0.53", "10.7.0.53"]));
    let status = daemon.firelane(&["netstat", "-D", "-I", "web1"]).expect_success();
    assert!(status.contains("[V4] [PRIMARY]") && status.contains("(Began, Expires, Renew) = ("), "{status}");
    // Another one takes over, and stays it over a restart.
    daemon.firelane(&["ipadm", "delete-addr", "-r", "web0/v4"]).expect_success();
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-1", "-w", "20", "web0/v4"]).expect_success();
    assert_eq!((is_primary(&daemon, "web0/v4"), is_primary(&daemon, "web1/v4")), (true, false));
    assert_eq!(first_servers(&daemon), serde_json::json!(["10.7.0.53", "10.8.0.53"]));
    daemon.kill();
    let daemon = Daemon::start_with(&sandbox, &[]);
    until("both leases", || {
        let is_bound = |name| row(&daemon, name)["lease"]["state"] == "BOUND";
        (is_bound("web0/v4") && is_bound("web1/v4")).then_some(())
    });
    assert_eq!((is_primary(&daemon, "web0/v4"), is_primary(&daemon, "web1/v4")), (true, false));
}

/// What a program on the netstack prints, or one in the kernel's namespace `host`.
fn program(sandbox: &Sandbox, daemon: &Daemon<'_>, on_netstack: bool, text: &str, to: &str) -> String {
    let mut command = sandbox.command("timeout");
    command.args(["-k", "2", "60"]);
    if on_netstack {
        command.env("FIRELANE_SOCKET", daemon.runtime().join("api.sock"));
        command.env("FIRELANE_PRELOAD", binary("libfirelane_preload.so"));
        command.arg(binary("firelane")).args(["run", "--quiet", "--require", "-v", "web0", "--"]);
    } else {
        command.args(["ip", "netns", "exec", "host"]);
    }
    let output = command.args(["/usr/bin/python3", "-c", text, to]).stdin(Stdio::null()).output();
    let output = output.expect("nsenter is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Another station on the switch: a kernel, in a namespace of its own.
const KERNEL: &str = "[vnic.host0]\nover = \"vswitch1\"\ntap = { namespace = \"host\" }\n";

/// RFC 1122 §3.3.4.3 leaves open which of several addresses of a network is the source: the first that was added, whatever its number.
#[test]
fn of_addresses_that_are_as_good_the_first_is_the_source_as_in_linux() {
    let sandbox = Sandbox::new();
    // The kernel has the same addresses, so it is elsewhere.
    let apart = "[etherstub.vswitch2]\n[vnic.host0]\nover = \"vswitch2\"\ntap = { namespace = \"host\" }\n";
    let daemon = start(&sandbox, apart);
    let asks = "import socket, sys\nfor dst in sys.argv[1].split():\n one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n \
                one.connect((dst, 9))\n print(one.getsockname()[0])\n";
    // Two networks, each with its addresses in no order, neither theirs nor that of their names.
    let added = ["10.7.0.30/24", "10.7.0.40/24", "10.7.0.20/24", "10.6.0.9/24", "10.6.0.2/24"];
    let ours = |words: &[&str]| daemon.firelane(&[&["ipadm"], words].concat()).expect_success();
    let kernels =
        |words: &[&str]| sandbox.run(Some("host"), "ip", &[&["address"], words].concat()).expect_success();
    for (nth, address) in added.into_iter().enumerate() {
        ours(&["create-addr", "-T", "static", "-a", address, &format!("web0/a{}", 9 - nth)]);
        kernels(&["add", address, "dev", "host0"]);
    }
    // Each is tested first.
    until("all are in use", || {
        (0..5).all(|nth| row(&daemon, &format!("web0/a{}", 9 - nth))["state"] == "ok").then_some(())
    });
    let [ours, kernels] =
        [true, false].map(|on_netstack| program(&sandbox, &daemon, on_netstack, asks, "10.7.0.1 10.6.0.77"));
    assert_eq!(kernels, "10.7.0.30\n10.6.0.9\n");
    assert_eq!(ours, kernels);
}

/// A router that advertises 42 hops, and a prefix for addresses.
const ADVERTISES: &str = "import socket, struct, time
router = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
router.setsockopt(41, socket.IPV6_MULTICAST_HOPS, 255)
router.setsockopt(41, socket.IPV6_MULTICAST_IF, socket.if_nametoindex('srv0'))
router.setsockopt(41, socket.IPV6_MULTICAST_LOOP, 0)
prefix = struct.pack('!BBBBIII', 3, 4, 64, 0xc0, 3600, 3600, 0) + socket.inet_pton(socket.AF_INET6, 'fd00:7::')
while True:
    try:
        router.sendto(struct.pack('!BBHBBHII', 134, 0, 0, 42, 0, 1800, 0, 0) + prefix, ('ff02::1', 0))
    except OSError:
        # Its own address is still tested.
        pass
    time.sleep(0.5)
";

/// Answers with the hops that were left of each datagram, and accepts connections.
const HOPS_LEFT: &str = "import select, socket
door = socket.create_server(('::', 7), family=socket.AF_INET6)
asked = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
asked.setsockopt(41, 51, 1)
asked.bind(('fd00:7::1', 7))
kept = []
while True:
    for one in select.select([door, asked], [], [])[0]:
        if one is door:
            kept.append(door.accept())
        else:
            text, control, _, peer = asked.recvmsg(100, 100)
            asked.sendto(str(int.from_bytes(control[0][2][:4], 'little')).encode(), peer)
";

/// What a program is told of its hops before it has a peer, after, and around a word of its own; and what arrives there.
const HOPS_TOLD: &str = "import socket, sys
def told(one):
    return one.getsockopt(41, 16)
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    one = socket.socket(socket.AF_INET6, kind)
    one.settimeout(10)
    before = told(one)
    one.connect((sys.argv[1], 7))
    after = told(one)
    one.setsockopt(41, 16, 9)
    own = told(one)
    one.setsockopt(41, 16, -1)
    print(kind.name, before, after, own, told(one))
one.send(b'x')
print(one.recv(100))
";

#[test]
fn programs_are_told_the_hops_that_a_router_advertises() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, KERNEL);
    let mut router = sandbox.command_in("srv", &["/usr/bin/python3", "-c", ADVERTISES]);
    let _router = Background::start(&mut router);
    daemon.firelane(&["ipadm", "create-addr", "-T", "addrconf", "web0/auto"]).expect_success();
    let mut echo = sandbox.command_in("srv", &["/usr/bin/python3", "-c", HOPS_LEFT]);
    let _echo = Background::start(&mut echo);
    let [ours, kernels] = [true, false].map(|on_netstack| {
        until("the router is heard", || {
            let (known, word) = match on_netstack {
                true => {
                    let show = ["ipadm", "show-addr", "-p", "-o", "state,addr", "web0/"];
                    (daemon.firelane(&show).stdout.replace('\\', ""), "ok:fd00:7:")
                }
                false => {
                    let show = ["-6", "address", "show", "-tentative"];
                    (sandbox.run(Some("host"), "ip", &show).stdout, "fd00:7:")
                }
            };
            known.contains(word).then_some(())
        });
        program(&sandbox, &daemon, on_netstack, HOPS_TOLD, "fd00:7::1")
    });
    assert_eq!(kernels, "SOCK_STREAM 64 42 9 42\nSOCK_DGRAM 64 42 9 42\nb'42'\n");
    assert_eq!(ours, kernels);
}

/// A server by hand, which writes down what it hears: when, what, whether from a station that knows it, and for which address. It says
/// what is added to it.
const BY_HAND: &str = "import socket, struct, sys, time
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
door.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
door.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'srv0')
door.setsockopt(socket.IPPROTO_IP, 8, 1)
door.bind(('', 67))
heard = open(sys.argv[1], 'w', buffering=1)
OWN = socket.inet_aton('10.7.0.1')
def option(code, value):
    return bytes([code, len(value)]) + value
def times(*seconds):
    return b''.join(option(code, struct.pack('!I', it)) for code, it in zip((51, 58, 59), seconds))
MASK = option(1, bytes([255, 255, 255, 0])) + option(54, OWN)
def say(asked, kind, address, options, names=bytes(192)):
    reply = bytes([2]) + asked[1:12] + bytes(4) + socket.inet_aton(address) + bytes(8) + asked[28:44] + names
    text = reply + bytes([99, 130, 83, 99]) + option(53, bytes([kind])) + options
    door.sendto(text, ('255.255.255.255', 68))
def hear():
    asked, control, _, _ = door.recvmsg(1500, 100)
    dst = socket.inet_ntoa(control[0][2][8:12])
    kind = {1: 'DISCOVER', 3: 'REQUEST', 4: 'DECLINE'}.get(asked[242], '?')
    way = 'everybody' if dst == '255.255.255.255' else 'one'
    has = socket.inet_ntoa(asked[12:16])
    print(time.monotonic(), kind, way, has, file=heard)
    return kind, way, has, asked
";

/// Gives an address for five seconds; from then on it answers the first that asks everybody for more, and nobody else.
const FALLS_SILENT: &str = "
more = 1
while True:
    kind, way, has, asked = hear()
    if kind == 'DISCOVER':
        if more:
            say(asked, 2, '10.7.0.100', MASK + times(5, 1, 3) + option(3, OWN) + b'\\xff')
    elif has == '0.0.0.0' or way == 'everybody' and more:
        more -= has != '0.0.0.0'
        say(asked, 5, '10.7.0.100', MASK + times(5, 1, 3) + option(3, OWN) + b'\\xff')
        print(time.monotonic(), 'ACK', 'everybody', '10.7.0.100', file=heard)
";

/// RFC 2131 §4.4.5, live: whom the lease came from is asked at T1, everybody at T2, and at its end the address goes.
#[test]
fn a_lease_is_renewed_then_asked_of_everybody_and_ends() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let file = sandbox.folder().join("heard");
    let program = format!("{BY_HAND}{FALLS_SILENT}");
    let path = file.to_string_lossy();
    let _server =
        Background::start(&mut sandbox.command_in("srv", &["/usr/bin/python3", "-c", &program, &path]));
    until("the server is there", || file.exists().then_some(()));
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "10", "web0/v4"]).expect_success();
    let heard = || -> Vec<(f64, String)> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.filter_map(|(at, what)| Some((at.parse().ok()?, what.to_owned()))).collect()
    };
    let state = || row(&daemon, "web0/v4")["lease"]["state"].as_str().unwrap_or_default().to_owned();
    until("nobody has answered at T2", || {
        let acks = heard().iter().filter(|it| it.1.starts_with("ACK")).count();
        (acks == 2 && state() == "REBINDING").then_some(())
    });
    assert!(ping(&sandbox, "10.7.0.100"), "until its end it is used");
    until("its end", || (state() == "SELECTING").then_some(()));
    // Before it asks once more.
    let heard = until("it begins anew", || Some(heard()).filter(|it| it.len() >= 9));
    assert!(!ping(&sandbox, "10.7.0.100") && !routes(&daemon).contains("default "), "{}", routes(&daemon));
    let words: Vec<_> = heard.iter().map(|it| it.1.as_str()).collect();
    let (one, everybody) = ("REQUEST one 10.7.0.100", "REQUEST everybody 10.7.0.100");
    let ack = "ACK everybody 10.7.0.100";
    let (begin, asks) = ("DISCOVER everybody 0.0.0.0", "REQUEST everybody 0.0.0.0");
    assert_eq!(words, [begin, asks, ack, one, everybody, ack, one, everybody, begin], "{heard:?}");
    // Each a little early, so that not all ask at once; and later by what a busy machine takes.
    for (from, to, least, most) in
        [(2, 3, 0.9, 2.5), (2, 4, 2.8, 4.5), (5, 6, 0.9, 2.5), (5, 7, 2.8, 4.5), (5, 8, 4.8, 6.5)]
    {
        let took = heard[to].0 - heard[from].0;
        assert!((least..most).contains(&took), "{} after {}: {heard:?}", words[to], words[from]);
    }
}

/// Offers that lie, each for an address of its own, and then one that is as good as its options allow.
const LIES: &str = "
good = MASK + times(3600, 1800, 3000)
lies = [
    (good + bytes([3, 200]), bytes(192)),
    (good + bytes([3]), bytes(192)),
    (good + option(52, b'\\x01'), bytes(64) + bytes([12, 255]) * 64),
    (good + option(52, b'\\x03') + b'\\xff', bytes([15, 64]) * 96),
    (MASK + option(51, b'\\xff'), bytes(192)),
    (option(1, bytes([255, 0, 255, 0])) + option(54, OWN) + times(3600), bytes(192)),
]
loop = b'\\x03lab\\xc0\\x00'
junk = option(121, bytes([33, 10, 7, 0, 1, 10, 7, 0, 66])) + option(121, bytes([24, 10]) * 100)
junk += option(119, loop) + option(119, b'\\xc0\\x00') + option(119, b'\\x3f' * 255)
junk += option(15, b'x' * 255) + option(12, b'a\\nb' * 85) + option(6, bytes([10, 7, 0])) + option(0xfe, b'')
junk += option(43, bytes(40)) + option(52, b'\\x03')
names = option(66, b'z' * 61) + b'\\xff' + option(67, b'y' * 125) + b'\\xff'
while True:
    kind, way, has, asked = hear()
    if kind == 'DISCOVER':
        for nth, (options, rest) in enumerate(lies):
            say(asked, 2, '10.7.0.%d' % (60 + nth), options, rest.ljust(192, b'\\xff'))
    answer = {'DISCOVER': 2, 'REQUEST': 5}.get(kind)
    if answer:
        say(asked, answer, '10.7.0.100', good + option(3, OWN) + junk + b'\\xff', names)
";

#[test]
fn a_server_that_lies_is_believed_in_nothing_that_cannot_be() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, "");
    let file = sandbox.folder().join("heard");
    let program = format!("{BY_HAND}{LIES}");
    let path = file.to_string_lossy();
    let _server =
        Background::start(&mut sandbox.command_in("srv", &["/usr/bin/python3", "-c", &program, &path]));
    until("the server is there", || file.exists().then_some(()));
    daemon.firelane(&["ipadm", "create-addr", "-T", "dhcp", "-w", "10", "web0/v4"]).expect_success();
    let got = bound(&daemon, "10.7.0.");
    let heard = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(got["addr"], "10.7.0.100/24", "{heard}");
    assert_eq!(heard.lines().count(), 2, "one question and one request: {heard}");
    // What cannot be read of routes is as if it were not there, and the router counts.
    let table = routes(&daemon);
    let gateways = table.lines().filter(|line| line.contains(" UG")).count();
    assert!(
        gateways == 1 && table.lines().any(|it| it.starts_with("default ") && it.contains("10.7.0.1 ")),
        "{table}"
    );
    assert_eq!(got["resolvers"], Value::Null, "{got}");
    answers(&sandbox, "10.7.0.100");
}

/// RFC 4861 §7.2.5: a station that advertises itself as a router, and says when it is asked that it is none, is left, by the kernel
/// as by a netstack.
#[test]
fn who_advertises_and_is_no_router_is_left_as_by_linux() {
    let sandbox = Sandbox::new();
    let daemon = start(&sandbox, KERNEL);
    let mut router = sandbox.command_in("srv", &["/usr/bin/python3", "-c", ADVERTISES]);
    let router = Background::start(&mut router);
    daemon.firelane(&["ipadm", "create-addr", "-T", "addrconf", "web0/auto"]).expect_success();
    let ways = || {
        let ours = daemon.firelane(&["netstat", "-rn", "-f", "inet6"]).expect_success();
        let kernels = sandbox.run(Some("host"), "ip", &["-6", "route", "show", "default"]).stdout;
        [ours.lines().any(|line| line.starts_with("default ")), kernels.contains("default via fe80")]
    };
    until("both have a way out", || (ways() == [true; 2]).then_some(()));
    drop(router);
    // A datagram for somebody far away asks it for its Ethernet address, and the kernel that has it does not forward.
    let far =
        "import socket\nsocket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('2001:db8::1', 9))";
    let send = |on_netstack| {
        // Who has no way out is told so.
        let text = format!("{far}\n").replace("\nsocket.", "\ntry:\n socket.") + "except OSError: pass\n";
        program(&sandbox, &daemon, on_netstack, &text, "");
    };
    until("nobody has a way out", || {
        [true, false].into_iter().for_each(&send);
        (ways() == [false; 2]).then_some(())
    });
}
