//! The probes are in the program, with their names and arguments, where tracers look for them.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::process::Command;

use firelane::{Stack, TcpListener, TcpStream, WireConfig, wire};

/// The probes of this very program, each with the most arguments that one of its places has. A place without a count of
/// who looks is one whose code the linker has left out.
fn probes() -> BTreeMap<String, usize> {
    let notes = Command::new("readelf").arg("-n").arg(std::env::current_exe().unwrap()).output();
    let notes = notes.expect("readelf comes with the linker that Rust needs");
    assert!(notes.status.success());
    let text = String::from_utf8_lossy(&notes.stdout).into_owned();
    let (mut provider, mut name, mut is_live) = (String::new(), String::new(), false);
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        match line.split_once(':') {
            Some(("Provider", value)) => provider = value.trim().to_owned(),
            Some(("Name", value)) => name = value.trim().to_owned(),
            Some(("Location", value)) => is_live = !value.ends_with("0x0000000000000000"),
            Some(("Arguments", value)) if is_live => {
                let most = found.entry(format!("{provider}:{name}")).or_insert(0);
                *most = value.split_whitespace().count().max(*most);
            }
            _ => {}
        }
    }
    found
}

#[test]
fn tracers_find_every_probe_and_its_arguments() {
    // What is used is in the program: two stacks that speak to each other.
    let (left, right) = wire(WireConfig::default());
    let stack = |end: firelane::Queue, address: &str| {
        Stack::builder().interface(end).address(address).unwrap().build().unwrap()
    };
    let (server, client) = (stack(left.into(), "10.0.0.1/24"), stack(right.into(), "10.0.0.2/24"));
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let _stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    listener.accept().unwrap();
    let found = probes();
    for (probe, arguments) in [
        ("tcp:send", 10),
        ("tcp:receive", 10),
        ("tcp:state__change", 8),
        ("tcp:accept", 6),
        ("tcp:connect", 6),
        ("ip:send", 3),
        ("ip:receive", 3),
        ("ip:drop", 5),
    ] {
        assert_eq!(found.get(probe), Some(&arguments), "{probe} in {found:?}");
    }
}
