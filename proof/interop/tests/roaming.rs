//! A NIC whose cable is put into another network: the lease of the one before goes, and that of the new one comes.

use firelane_interop::{Daemon, Sandbox};

use crate::dhcp::{Server, bound, log_of, routes, until};

const HOST: &str = "[link.net0]\nkind = \"nic\"\nifname = \"near0\"\n\
    [vnic.web0]\nover = \"net0\"\nnetstack = \"default\"\n\
    [netstack.default.addresses]\n\"web0/v4\" = \"dhcp\"\n";

fn ip(sandbox: &Sandbox, namespace: Option<&str>, args: &str) {
    let args: Vec<_> = args.split_whitespace().collect();
    sandbox.run(namespace, "ip", &args).expect_success();
}

/// The network at the other end of the cable, with its server.
fn network(sandbox: &Sandbox, nth: u8) -> Server {
    ip(sandbox, Some("srv"), "address flush dev srv0 scope global");
    ip(sandbox, Some("srv"), &format!("link set srv0 address 02:00:00:00:00:{nth:02}"));
    ip(sandbox, Some("srv"), &format!("address add 10.{nth}.0.1/24 dev srv0"));
    ip(sandbox, Some("srv"), "link set srv0 up");
    Server::start(sandbox, &[&format!("--dhcp-range=10.{nth}.0.100,10.{nth}.0.110,255.255.255.0,1h")])
}

#[test]
fn a_cable_in_another_network_brings_its_lease_and_one_in_the_same_keeps_it() {
    let sandbox = Sandbox::new();
    if !sandbox.veth("near0", "srv", "10.7.0.1/24") {
        return;
    }
    ip(&sandbox, Some("srv"), "link set far down");
    ip(&sandbox, Some("srv"), "link set far name srv0");
    let first = network(&sandbox, 7);
    let config = sandbox.folder().join("host.toml");
    std::fs::write(&config, HOST).expect("the sandbox's folder is writable");
    let daemon = Daemon::start(&sandbox, &config);
    let held = bound(&daemon, "10.7.0.");
    // The same network: it is asked, and nothing changes.
    let asked = || log_of(&sandbox).matches("DHCPACK(srv0)").count();
    let before = asked();
    ip(&sandbox, Some("srv"), "link set srv0 down");
    ip(&sandbox, Some("srv"), "link set srv0 up");
    until("the server hears of it", || (asked() > before).then_some(()));
    assert_eq!(bound(&daemon, "10.7.0.")["addr"], held["addr"]);
    ip(&sandbox, Some("srv"), "link set srv0 down");
    drop(first);
    let _second = network(&sandbox, 8);
    bound(&daemon, "10.8.0.");
    let table = routes(&daemon);
    assert!(table.contains("10.8.0.1") && !table.contains("10.7.0."), "{table}");
}
