//! A host with as many VNICs, or wires, as one host may have is read, checked and written without growing pains.

use std::fmt::Write;

use firelane_model::{ADDRESSES_MAX, LINKS_MAX, Model, ROUTE_SOURCES_MAX};

fn host_with(vnics: usize) -> String {
    let mut text = String::from("[etherstub.sw0]\n");
    for number in 0..vnics {
        write!(text, "[vnic.v{number}]\nover = \"sw0\"\nmaxbw = \"50M\"\n").expect("a string grows");
    }
    text
}

#[test]
fn the_largest_model_reads_back_and_one_more_link_is_refused() {
    let model = Model::from_toml("large.toml", &host_with(LINKS_MAX - 1)).expect("as many as allowed");
    assert_eq!(model.vnics.len(), LINKS_MAX - 1);
    assert_eq!(Model::from_toml("dump", &model.to_toml()), Ok(model));
    let faults = Model::from_toml("large.toml", &host_with(LINKS_MAX)).expect_err("one too many");
    assert_eq!(faults[0].to_string(), "large.toml:1: link, etherstub and vnic: \"20001\": at most 20000");
}

/// Wires in a row, and from one switch to all others, which is as far as some of them can be from each other in what is kept of them.
#[test]
fn as_many_wires_as_there_may_be_are_looked_at_once_each() {
    for from in [|number: usize| number - 1, |_| 0] {
        let mut text: String = (0..LINKS_MAX).map(|number| format!("[etherstub.e{number}]\n")).collect();
        for number in 1..LINKS_MAX {
            let ends = [from(number), number].map(|it| format!("e{it}"));
            writeln!(text, "[wire.w{number}]\nends = {ends:?}").expect("a string grows");
        }
        let model = Model::from_toml("large.toml", &text).expect("a tree of switches");
        assert_eq!(model.wires.len(), LINKS_MAX - 1);
        let ring = text + "[wire.ring0]\nends = ['e7', 'e19999']\n";
        let faults = Model::from_toml("large.toml", &ring).expect_err("a ring");
        assert!(
            !faults.is_empty() && faults.iter().all(|it| it.to_string().contains("for ever")),
            "{}",
            faults[0]
        );
    }
}

#[test]
fn a_file_that_is_wrong_everywhere_gives_a_hundred_lines() {
    let text = host_with(10_000).replace("[etherstub.sw0]\n", "");
    assert_eq!(Model::from_toml("large.toml", &text).expect_err("no switch").len(), 100);
}

#[test]
fn a_hundred_thousand_networks_and_thousands_of_rules_are_read() {
    let networks: String =
        (0..100_000_u32).map(|n| format!("'10.{}.{}.{}',", n >> 16, n >> 8 & 255, n & 255)).collect();
    let rules = |count: usize| "'block in from pool/13 to any',".repeat(count);
    let text = |count| {
        format!("[netstack.web]\nfilter = [{}]\n[netstack.web.pools]\n13 = [{networks}]\n", rules(count))
    };
    let model = Model::from_toml("large.toml", &text(10_000)).expect("as many as allowed");
    assert_eq!(
        model.netstacks["web"].packet_filter().pools.values().next().map(|it| it.entries().len()),
        Some(100_000)
    );
    assert_eq!(Model::from_toml("dump", &model.to_toml()), Ok(model));
    let faults = Model::from_toml("large.toml", &text(firelane_model::FILTER_RULES_MAX + 1))
        .expect_err("one too many");
    assert_eq!(faults[0].to_string(), "large.toml:2: netstack.web.filter: \"16385\": at most 16384");
}

/// Lanes have room for so many, and who is told that his address is there shall find it there.
#[test]
fn addresses_and_sources_that_no_lane_has_room_for_are_no_configuration() {
    let text = |addresses: usize, sources: usize| {
        let vnics = "[etherstub.sw0]\n[vnic.a0]\nover = 'sw0'\nnetstack = 'web'\n[vnic.b0]\nover = 'sw0'\nnetstack = 'web'\n";
        let address = |n: usize| format!("'a0/n{n}' = '10.0.{}.{}/16'\n", n >> 8, n & 255);
        let route = |n: usize| {
            format!("{{ destination = 'default', gateway = '10.0.0.1', source = '10.1.{n}.0/24' }},")
        };
        let addresses: String = (2..addresses + 2).map(address).collect();
        let routes: String = (0..sources).map(route).collect();
        format!("{vnics}[netstack.web]\nroutes = [{routes}]\n[netstack.web.addresses]\n{addresses}")
    };
    let told = |addresses, sources| {
        let faults = Model::from_toml("large.toml", &text(addresses, sources)).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // Each VNIC has one for its link.
    assert_eq!(told(ADDRESSES_MAX - 2, ROUTE_SOURCES_MAX), [""; 0]);
    let allowed = "at most 1024 with those of its 2 VNICs for their links";
    assert_eq!(told(1023, 0), [format!("large.toml:10: netstack.web.addresses: \"1023\": {allowed}")]);
    let allowed = "routes of at most 64 sources";
    assert_eq!(told(0, 65), [format!("large.toml:9: netstack.web.routes: \"65\": {allowed}")]);
}
