//! Changes one after another, through the routes: what they do, and with which word they are refused.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use firelane_api::{
    AddressState, LeaseInfo, Leased, Method, PlanStep, Request, ResolverInfo, Store, Stub, dispatch,
    made_permanent,
};
use firelane_model::Model;
use proptest::prelude::*;
use serde_json::{Value, json};

fn planner(wanted: &Model, present: &Model) -> Vec<PlanStep> {
    let steps = firelane_plan::plan(wanted, present);
    steps
        .iter()
        .map(|s| PlanStep { effect: s.effect.to_string(), step: s.to_string(), lines: s.lines() })
        .collect()
}

fn two_tenants() -> Stub {
    let text = include_str!("../../../examples/two-tenants.toml");
    Stub::new(Model::from_toml("two-tenants.toml", text).unwrap(), planner)
}

/// Sends `METHOD /path?query` and gives the status with the body.
fn send(stub: &Stub, line: &str, body: &Value) -> (u16, Value) {
    let (method, target) = line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let method = Method::from_word(method).unwrap();
    let response = dispatch(stub, &Request { method, path, query, body: body.as_bytes() });
    (response.status, serde_json::from_slice(&response.body).unwrap())
}

/// The status text of a refusal, or "" if the request went through.
fn refusal(stub: &Stub, line: &str, body: &Value) -> String {
    let before = stub.store();
    let (status, answer) = send(stub, line, body);
    if status == 200 {
        return String::new();
    }
    assert_eq!(stub.store(), before, "a refused request changed something");
    answer["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_vnic_with_a_flow_comes_and_goes() {
    let stub = Stub::new(Model::default(), planner);
    let flow = |port: u16| json!({"link": "vnic3", "match": {"transport": "tcp", "local_port": port}, "maxbw": "50M"});
    let table = [
        ("POST /v1/vnics", json!({"name": "vnic3", "vnic": {"over": "sw1"}}), "invalid link"),
        ("POST /v1/etherstubs", json!({"name": "sw1"}), ""),
        ("POST /v1/etherstubs", json!({"name": "sw1"}), "object already exists"),
        ("POST /v1/vnics", json!({"name": "vnic3", "vnic": {"over": "sw1", "mac": "2:8:20:0:0:1"}}), ""),
        ("POST /v1/vnics", json!({"name": "vnic3", "vnic": {"over": "sw1"}}), "object already exists"),
        ("POST /v1/vnics", json!({"name": "vnic4", "vnic": {"over": "vnic3"}}), "invalid link"),
        (
            "POST /v1/vnics",
            json!({"name": "vnic4", "vnic": {"over": "sw1", "mac": "2:8:20:0:0:1"}}),
            "MAC address is already in use",
        ),
        ("POST /v1/vnics", json!({"name": "vnic", "vnic": {"over": "sw1"}}), "invalid argument"),
        ("POST /v1/flows", json!({"name": "f1", "flow": flow(443)}), ""),
        ("POST /v1/flows", json!({"name": "f1", "flow": flow(80)}), "object already exists"),
        (
            "POST /v1/flows",
            json!({"name": "f2", "flow": flow(443)}),
            "a flow with identical attributes exists",
        ),
        (
            "POST /v1/flows",
            json!({"name": "f2", "flow": {"link": "vnic3", "match": {"local_port": 1}}}),
            "local or remote port requires transport",
        ),
        ("POST /v1/flows", json!({"name": "f2", "flow": {"link": "vnic3", "match": {}}}), "invalid argument"),
        ("POST /v1/flows", json!({"name": "f2", "flow": {"link": "vnic9", "match": {}}}), "invalid link"),
        ("PATCH /v1/flows/f1/props", json!({"props": {"maxbw": "100M"}}), ""),
        ("PATCH /v1/flows/f1/props", json!({"props": {"maxbw": "1Q"}}), "invalid value"),
        ("PATCH /v1/flows/f1/props", json!({"props": {"priority": "urgent"}}), "invalid value"),
        ("PATCH /v1/flows/f1/props", json!({"props": {"colour": "red"}}), "invalid property"),
        (
            "PATCH /v1/links/vnic3/props",
            json!({"props": {"mtu": "9001"}}),
            "MTU check failed, MTU outside of device's supported range",
        ),
        ("PATCH /v1/links/vnic3/props", json!({"props": {"mtu": "9000", "priority": null}}), ""),
        (
            "PATCH /v1/links/sw1/props",
            json!({"props": {"mtu": "1500"}}),
            "MTU check failed, MTU outside of device's supported range",
        ),
        ("PATCH /v1/links/vnic3/props", json!({"props": {"state": "down"}}), "read-only property"),
        ("DELETE /v1/etherstubs/sw1", Value::Null, "link busy"),
        ("DELETE /v1/vnics/vnic3", Value::Null, "link still has flows"),
        ("DELETE /v1/vnics/sw1", Value::Null, "invalid link"),
        ("DELETE /v1/flows/f1", Value::Null, ""),
        ("DELETE /v1/flows/f1", Value::Null, "object not found"),
        ("DELETE /v1/vnics/vnic3", Value::Null, ""),
        ("DELETE /v1/vnics/vnic3", Value::Null, "object not found"),
        ("DELETE /v1/etherstubs/sw1", Value::Null, ""),
    ];
    for (line, body, want) in table {
        assert_eq!(refusal(&stub, line, &body), want, "{line} {body}");
    }
    assert_eq!(stub.store().active, Model::default());
}

/// Of several properties at once, the one that is told is the one that is wrong.
#[test]
fn a_guarantee_that_cannot_be_kept_is_told_by_the_property_that_breaks_it() {
    let stub = Stub::new(Model::default(), planner);
    let flow = json!({"link": "v1", "match": {"transport": "tcp"}, "minbw": "4M"});
    for (line, body) in [
        ("POST /v1/etherstubs", json!({"name": "sw1"})),
        ("PATCH /v1/links/sw1/props", json!({"props": {"maxbw": "20M"}})),
        ("POST /v1/vnics", json!({"name": "v1", "vnic": {"over": "sw1", "maxbw": "10M"}})),
        ("POST /v1/flows", json!({"name": "f1", "flow": flow})),
    ] {
        assert_eq!(refusal(&stub, line, &body), "", "{line} {body}");
    }
    for (line, props, field, value) in [
        // Its flows are guaranteed 4M.
        ("links/v1", json!({"minbw": "1M", "maxbw": "3M"}), "maxbw", "3M"),
        ("links/v1", json!({"maxbw": "3M"}), "maxbw", "3M"),
        // More than its own limit.
        ("links/v1", json!({"minbw": "6M", "maxbw": "5M"}), "minbw", "6M"),
        ("links/v1", json!({"minbw": "11M"}), "minbw", "11M"),
        // More than the limit above.
        ("links/v1", json!({"minbw": "21M", "maxbw": "30M"}), "minbw", "21M"),
        ("flows/f1", json!({"minbw": "11M", "maxbw": "12M"}), "minbw", "11M"),
        ("flows/f1", json!({"maxbw": "3M", "priority": "low"}), "maxbw", "3M"),
    ] {
        let (status, told) = send(&stub, &format!("PATCH /v1/{line}/props"), &json!({"props": props}));
        assert_eq!((status, &told["field"], &told["value"]), (400, &json!(field), &json!(value)), "{told}");
    }
}

#[test]
fn interfaces_and_addresses() {
    let stub = two_tenants();
    let addr = |name: &str, address: &str| json!({"name": name, "address": address});
    let table = [
        ("POST /v1/ifs", json!({"name": "nosuch0"}), "Datalink does not exist"),
        ("POST /v1/ifs", json!({"name": "vswitch1"}), "Operation not supported"),
        ("POST /v1/addrs", addr("vswitch1/v4", "10.0.0.99/24"), "Operation not supported"),
        ("POST /v1/ifs", json!({"name": "web0"}), "Interface already exists"),
        ("POST /v1/ifs", json!({"name": "alice0"}), "Interface already in use"),
        ("POST /v1/addrs", addr("web0/v4", "10.0.0.99/24"), "Address object already exists"),
        ("POST /v1/addrs", addr("web0/x", "10.0.0.10/24"), "Address already in use"),
        ("POST /v1/addrs", addr("web0/x", "10.0.0.255/24"), "invalid argument"),
        ("POST /v1/addrs", addr("web0/x", "10.0.0.99/24"), ""),
        ("DELETE /v1/addrs/web0/x", Value::Null, ""),
        ("DELETE /v1/addrs/web0/x", Value::Null, "Object not found"),
        ("DELETE /v1/vnics/web0", Value::Null, "link busy"),
        ("DELETE /v1/ifs/web0", Value::Null, ""),
        ("DELETE /v1/ifs/web0", Value::Null, "Interface does not exist"),
        ("POST /v1/addrs", addr("web0/v4", "10.0.0.10/24"), ""),
    ];
    for (line, body, want) in table {
        assert_eq!(refusal(&stub, line, &body), want, "{line} {body}");
    }
    let (_, ifs) = send(&stub, "GET /v1/ifs", &Value::Null);
    assert_eq!(ifs, json!([{"name": "web0", "netstack": "default", "state": "ok", "persistent": true}]));
}

#[test]
fn a_netstack_that_an_interface_made_goes_with_it_unless_something_is_said_of_it() {
    let stub = two_tenants();
    let two: [fn(&Stub); 2] = [
        |_| {},
        |stub| {
            let forwarding = json!({"props": {"ipv4.forwarding": "on"}});
            assert_eq!(refusal(stub, "PATCH /v1/netstacks/lab/props", &forwarding), "");
        },
    ];
    for (stays, say) in [(false, two[0]), (true, two[1])] {
        for (name, over) in [("lab0", "vswitch1"), ("lab1", "vswitch1")] {
            let vnic = json!({"name": name, "vnic": {"over": over}});
            refusal(&stub, "POST /v1/vnics", &vnic);
            assert_eq!(refusal(&stub, "POST /v1/ifs", &json!({"name": name, "netstack": "lab"})), "");
        }
        say(&stub);
        let is_there = || stub.store().active.netstacks.contains_key("lab");
        assert_eq!(refusal(&stub, "DELETE /v1/ifs/lab0", &Value::Null), "");
        assert!(is_there(), "another interface is its");
        assert_eq!(refusal(&stub, "DELETE /v1/ifs/lab1", &Value::Null), "");
        assert_eq!(is_there(), stays);
    }
    // A service waits for an interface.
    assert_eq!(refusal(&stub, "DELETE /v1/ifs/web0", &Value::Null), "");
    assert!(stub.store().active.netstacks.contains_key("web"));
}

#[test]
fn what_is_temporary_is_not_in_the_next_start() {
    let stub = two_tenants();
    let table = [
        ("POST /v1/etherstubs", json!({"name": "sw2", "temporary": true}), ""),
        (
            "POST /v1/vnics",
            json!({"name": "t0", "vnic": {"over": "sw2"}}),
            "can't create persistent object on top of temporary object",
        ),
        ("POST /v1/vnics", json!({"name": "t0", "vnic": {"over": "sw2"}, "temporary": true}), ""),
        ("PATCH /v1/flows/iperf/props", json!({"props": {"maxbw": "100M"}, "temporary": true}), ""),
        ("DELETE /v1/flows/iperf?temporary=true", Value::Null, ""),
        (
            "POST /v1/flows",
            json!({"name": "iperf", "flow": {"link": "bob0", "match": {"transport": "udp"}}}),
            "persistent flow with the same name exists",
        ),
        ("PATCH /v1/links/t0/props", json!({"props": {"maxbw": "5M"}}), "change cannot be persistent"),
        ("PATCH /v1/links/t0/props", json!({"props": {"maxbw": "5M"}, "temporary": true}), ""),
        ("DELETE /v1/flows/iperf", Value::Null, ""),
        ("DELETE /v1/vnics/t0", Value::Null, ""),
        (
            "POST /v1/iptuns",
            json!({"name": "tun0", "vnic": {"iptun": {"type": "ipv4", "local": "10.0.0.10", "remote": "10.0.0.1"}},
                "temporary": true}),
            "",
        ),
        ("DELETE /v1/iptuns/tun0", Value::Null, ""),
    ];
    let start = stub.store().persistent;
    for (line, body, want) in table {
        if line.starts_with("DELETE /v1/flows/iperf") && !line.contains("temporary") {
            assert_eq!(stub.store().persistent, start);
        }
        assert_eq!(refusal(&stub, line, &body), want, "{line} {body}");
    }
    let (_, active) = send(&stub, "GET /v1/etherstubs", &Value::Null);
    let (_, persistent) = send(&stub, "GET /v1/etherstubs?persistent=true", &Value::Null);
    assert_eq!((active.as_array().unwrap().len(), persistent.as_array().unwrap().len()), (2, 1));
}

/// What is in one of the two configurations only takes no name, and no place, that another has in the other.
#[test]
fn what_is_temporary_changes_nothing_that_is_kept() {
    let stub = Stub::new(Model::default(), planner);
    let vnic =
        |name: &str, temporary: bool| json!({"name": name, "vnic": {"over": "s1"}, "temporary": temporary});
    let addr =
        |name: &str, temporary: bool| json!({"name": name, "address": "10.0.0.1/24", "temporary": temporary});
    let table = [
        ("POST /v1/etherstubs", json!({"name": "s1"}), ""),
        ("POST /v1/etherstubs", json!({"name": "s2"}), ""),
        ("DELETE /v1/etherstubs/s2?temporary=true", Value::Null, ""),
        ("POST /v1/vnics", vnic("kept0", false), ""),
        ("DELETE /v1/vnics/kept0?temporary=true", Value::Null, ""),
        ("POST /v1/vnics", vnic("now0", true), ""),
        // A kept VNIC's name, a kept etherstub's, and that of one that is in force for what is kept.
        ("PUT /v1/links/now0/name", json!({"name": "kept0"}), "object already exists"),
        ("PUT /v1/links/now0/name", json!({"name": "s2"}), "object already exists"),
        ("PUT /v1/links/kept0/name", json!({"name": "now0"}), "object already exists"),
        ("PUT /v1/links/now0/name", json!({"name": "then0"}), ""),
        ("PUT /v1/links/kept0/name", json!({"name": "later0"}), ""),
        // Its interface is in another netstack, or was in none.
        ("POST /v1/vnics", vnic("web0", false), ""),
        ("POST /v1/ifs", json!({"name": "web0", "netstack": "lab", "temporary": true}), ""),
        ("POST /v1/addrs", addr("web0/v4", false), "Persistent operation on temporary object"),
        ("POST /v1/addrs", addr("web0/v4", true), ""),
        // It is disabled: what is in force would come to be in `default`.
        ("POST /v1/vnics", vnic("off0", false), ""),
        ("POST /v1/ifs", json!({"name": "off0", "netstack": "lab2"}), ""),
        ("PATCH /v1/ifs/off0", json!({"enabled": false}), ""),
        ("POST /v1/addrs", addr("off0/v4", false), "Operation not supported on disabled object"),
        ("POST /v1/addrs", addr("off0/v4", true), "Operation not supported on disabled object"),
    ];
    for (line, body, wanted) in table {
        assert_eq!(refusal(&stub, line, &body), wanted, "{line} {body}");
    }
    let store = stub.store();
    assert!(store.persistent.class_of("later0").is_some() && store.active.class_of("then0").is_some());
    assert!(store.persistent.netstacks.keys().all(|it| it.as_str() == "lab2"));
}

/// What is only kept, because `-t` has taken it out of what is in force.
#[test]
fn what_is_kept_alone_is_found_by_its_name() {
    let stub = Stub::new(Model::default(), planner);
    let vlan = json!({"name": "k2", "temporary": true, "vnic": {"over": "s1", "vlan": 7, "is_vlan": true}});
    let flow = |name: &str, port: u16| json!({"name": name, "flow": {"link": "v1", "match": {"transport": "udp", "local_port": port}}});
    let table = [
        ("POST /v1/etherstubs", json!({"name": "s1"}), ""),
        ("POST /v1/vnics", json!({"name": "k2", "vnic": {"over": "s1"}}), ""),
        ("DELETE /v1/vnics/k2?temporary=true", Value::Null, ""),
        // One of another class could not be told from it.
        ("POST /v1/vnics", vlan, "object already exists"),
        ("POST /v1/etherstubs", json!({"name": "k2", "temporary": true}), "object already exists"),
        ("POST /v1/vnics", json!({"name": "k2", "temporary": true, "vnic": {"over": "s1"}}), ""),
        ("DELETE /v1/vnics/k2", Value::Null, ""),
        // What holds it is named, though it is kept alone.
        ("POST /v1/etherstubs", json!({"name": "ea1"}), ""),
        ("POST /v1/vnics", json!({"name": "va1", "vnic": {"over": "ea1"}}), ""),
        ("DELETE /v1/vnics/va1?temporary=true", Value::Null, ""),
        ("DELETE /v1/etherstubs/ea1?temporary=true", Value::Null, ""),
        ("DELETE /v1/etherstubs/ea1", Value::Null, "link busy"),
        ("DELETE /v1/vnics/va1", Value::Null, ""),
        ("DELETE /v1/etherstubs/ea1", Value::Null, ""),
        // All flows of a link, wherever they are.
        ("POST /v1/vnics", json!({"name": "v1", "vnic": {"over": "s1"}}), ""),
        ("POST /v1/flows", flow("dns", 53), ""),
        ("POST /v1/flows", flow("ntp", 123), ""),
        ("DELETE /v1/flows/dns?temporary=true", Value::Null, ""),
        ("DELETE /v1/links/nosuch/flows", Value::Null, "object not found"),
        ("DELETE /v1/links/v1/flows", Value::Null, ""),
    ];
    for (line, body, wanted) in table {
        assert_eq!(refusal(&stub, line, &body), wanted, "{line} {body}");
    }
    let store = stub.store();
    assert!(store.active.flows.is_empty() && store.persistent.flows.is_empty());
}

#[test]
fn the_whole_configuration_is_planned_and_replaced() {
    let stub = Stub::new(Model::default(), planner);
    let wanted = serde_json::to_value(two_tenants().store().active).unwrap();
    let (_, plan) = send(&stub, "POST /v1/plan", &wanted);
    assert_eq!(plan["steps"].as_array().unwrap().len(), 9);
    assert_eq!(stub.store().active, Model::default());
    let (_, applied) = send(&stub, "PUT /v1/model", &wanted);
    assert_eq!(applied, plan);
    let (_, again) = send(&stub, "PUT /v1/model", &wanted);
    assert_eq!(again, json!({"steps": []}));
    let (_, dump) = send(&stub, "GET /v1/model", &Value::Null);
    assert_eq!(dump, wanted);
    assert_eq!(
        refusal(&stub, "PUT /v1/model", &json!({"vnic": {"a0": {"over": "nosuch0"}}})),
        "invalid value"
    );
}

/// The steps that a plan and applying tell of a whole configuration.
fn told(stub: &Stub, line: &str, wanted: &Value) -> Vec<String> {
    let (status, reply) = send(stub, line, wanted);
    assert_eq!(status, 200, "{reply}");
    let steps = reply["steps"].as_array().unwrap().iter();
    steps.map(|it| format!("{} {}", it["effect"].as_str().unwrap(), it["step"].as_str().unwrap())).collect()
}

#[test]
fn what_becomes_permanent_is_said_beside_what_changes() {
    let stub = two_tenants();
    let set = |name: &str, value: &str| json!({"props": {name: value}, "temporary": true});
    for (line, body) in [
        ("PATCH /v1/links/web0/props", set("maxbw", "7M")),
        ("PATCH /v1/links/bob0/props", set("priority", "low")),
        ("POST /v1/vnics", json!({"name": "new0", "vnic": {"over": "vswitch1"}, "temporary": true})),
        ("DELETE /v1/flows/iperf?temporary=true", Value::Null),
    ] {
        assert_eq!(refusal(&stub, line, &body), "", "{line}");
    }
    let (_, mut wanted) = send(&stub, "GET /v1/model", &Value::Null);
    let beside = [
        "live make permanent: remove flow iperf",
        "live make permanent: set vnic bob0 priority high -> low",
        "live make permanent: set vnic web0 maxbw -- -> 7M",
        "live make permanent: create vnic new0 over vswitch1",
    ];
    assert_eq!(told(&stub, "POST /v1/plan", &wanted), beside);
    // What changes anyway is said once, whatever else of the same object becomes permanent; until the next start nothing does.
    wanted["vnic"]["web0"]["mtu"] = 1400.into();
    wanted["vnic"]["bob0"]["priority"] = "medium".into();
    let live = ["live set vnic bob0 priority low -> medium", "live set vnic web0 mtu -- -> 1400"];
    let both = [live.as_slice(), &[beside[0], beside[2], beside[3]]].concat();
    assert_eq!(told(&stub, "POST /v1/plan", &wanted), both);
    assert_eq!(told(&stub, "PUT /v1/model?temporary=true", &wanted), live);
    let beside = told(&stub, "POST /v1/plan", &wanted);
    assert_eq!(told(&stub, "PUT /v1/model", &wanted), beside);
    assert_eq!(
        beside,
        [
            "live make permanent: remove flow iperf",
            "live make permanent: set vnic bob0 priority high -> medium",
            "live make permanent: set vnic web0 mtu -- -> 1400, maxbw -- -> 7M",
            "live make permanent: create vnic new0 over vswitch1",
        ]
    );
    assert_eq!(told(&stub, "PUT /v1/model", &wanted), [""; 0]);
    assert_eq!(stub.store().active, stub.store().persistent);
}

#[test]
fn requests_that_fit_no_route_say_so() {
    let stub = two_tenants();
    assert_eq!(send(&stub, "GET /v1/nothing", &Value::Null).0, 404);
    assert_eq!(send(&stub, "PUT /v1/links", &Value::Null).0, 501);
    assert_eq!(send(&stub, "GET /v1/links?colour=red", &Value::Null).0, 400);
    assert_eq!(send(&stub, "GET /v1/links/nosuch0/props", &Value::Null).0, 404);
    assert_eq!(send(&stub, "DELETE /v1/vnics/..", &Value::Null).0, 404);
    let (status, answer) =
        send(&stub, "POST /v1/vnics", &json!({"name": "v0", "vnic": {"over": "vswitch1", "maxbw": "5Q"}}));
    assert_eq!(status, 400);
    assert!(answer["allowed"].as_str().unwrap().starts_with("\"5Q\": a rate is a number"), "{answer}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_routes_panic(method in 0usize..5, path in ".{0,30}", query in ".{0,20}", body in ".{0,60}") {
        let stub = two_tenants();
        let words = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        for path in [format!("/v1/{path}"), format!("/v1/flows/{path}"), "/v1/vnics".into(), "/v1/model".into()] {
            let method = Method::from_word(words[method]).unwrap();
            let response = dispatch(&stub, &Request { method, path: &path, query: &query, body: body.as_bytes() });
            prop_assert!(serde_json::from_slice::<Value>(&response.body).is_ok());
        }
    }

    #[test]
    fn a_plan_says_nothing_only_where_both_are_what_is_wanted(bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..500), 3)) {
        let [is, kept, shall] = [0, 1, 2].map(|nth: usize| firelane_models::model(&bytes[nth]));
        for (is, kept, shall) in [(&is, &kept, &shall), (&is, &kept, &is), (&is, &is, &shall), (&is, &kept, &kept)] {
            let store = Store { active: is.clone(), persistent: kept.clone() };
            let next = Store::new(shall.clone());
            let beside = made_permanent(planner(shall, &store.kept_beside(&next)));
            let is_same = is == shall && kept == shall;
            prop_assert_eq!(planner(shall, is).is_empty() && beside.is_empty(), is_same);
            if kept == is {
                prop_assert_eq!(beside, vec![], "what changes in both is said once");
            }
        }
    }

    #[test]
    fn every_change_leaves_both_models_valid(choices in prop::collection::vec((0usize..12, 0u8..4, 0u8..4, any::<bool>()), 1..30)) {
        let stub = Stub::new(Model::default(), planner);
        for (kind, a, b, temporary) in choices {
            let (line, body) = some_change(kind, a, b, temporary);
            send(&stub, &line, &body);
            let store = stub.store();
            prop_assert_eq!(store.active.validate(), vec![]);
            prop_assert_eq!(store.persistent.validate(), vec![]);
        }
    }
}

fn some_change(kind: usize, a: u8, b: u8, temporary: bool) -> (String, Value) {
    let query = if temporary { "?temporary=true" } else { "" };
    let flow = json!({"link": format!("v{a}"), "match": {"transport": "tcp", "local_port": 1 + b}});
    match kind {
        0 => ("POST /v1/etherstubs".into(), json!({"name": format!("s{a}"), "temporary": temporary})),
        1 => (format!("DELETE /v1/etherstubs/s{a}{query}"), Value::Null),
        2 | 3 => {
            let vnic = json!({"over": format!("s{b}")});
            ("POST /v1/vnics".into(), json!({"name": format!("v{a}"), "vnic": vnic, "temporary": temporary}))
        }
        4 => (format!("DELETE /v1/vnics/v{a}{query}"), Value::Null),
        5 => {
            ("POST /v1/flows".into(), json!({"name": format!("f{b}"), "flow": flow, "temporary": temporary}))
        }
        6 => (format!("DELETE /v1/flows/f{a}{query}"), Value::Null),
        7 => ("POST /v1/ifs".into(), json!({"name": format!("v{a}"), "temporary": temporary})),
        8 => (format!("DELETE /v1/ifs/v{a}{query}"), Value::Null),
        9 => {
            let address = format!("10.0.{b}.1/24");
            (
                "POST /v1/addrs".into(),
                json!({"name": format!("v{a}/x{b}"), "address": address, "temporary": temporary}),
            )
        }
        10 => (format!("DELETE /v1/addrs/v{a}/x{b}{query}"), Value::Null),
        _ => {
            let mtu = ["1500", "9000", "576", "1400"][usize::from(b)];
            let name = if a < 2 { format!("s{a}") } else { format!("v{a}") };
            (format!("PATCH /v1/links/{name}/props"), json!({"props": {"mtu": mtu}, "temporary": temporary}))
        }
    }
}

/// The rules of the netstack web in force, and those that the next start begins with.
fn routes(stub: &Stub) -> [Vec<String>; 2] {
    let store = stub.store();
    [&store.active, &store.persistent]
        .map(|model| model.netstacks["web"].routes.iter().map(ToString::to_string).collect())
}

#[test]
fn routes_come_go_and_take_places_and_are_kept_unless_temporary() {
    const ROUTES: &str = "PATCH /v1/netstacks/web/routes";
    let (stub, none) = (two_tenants(), Vec::<String>::new());
    let change = |change: Value, temporary: bool| json!({"change": change, "temporary": temporary});
    let by = |gateway: &str| json!({"destination": "10.9.0.0/16", "gateway": gateway});
    let fast = json!({"destination": "10.9.0.0/16", "gateway": "10.0.0.1", "congestion_control": "bbr"});
    let said = ["10.9.0.0/16 via 10.0.0.1", "10.9.0.0/16 via 10.0.0.2"];
    let add = |route: &Value, temporary| change(json!({"add": [route]}), temporary);
    let remove = |route: &Value, temporary| change(json!({"remove": [route]}), temporary);
    assert_eq!(refusal(&stub, ROUTES, &add(&by("10.0.0.1"), true)), "");
    assert_eq!(routes(&stub), [vec![said[0].to_owned()], none.clone()]);
    assert_eq!(refusal(&stub, ROUTES, &add(&fast, true)), "object already exists");
    assert_eq!(refusal(&stub, ROUTES, &add(&by("10.0.0.1"), false)), "", "it becomes permanent");
    assert_eq!(routes(&stub), [[said[0]]; 2]);
    assert_eq!(refusal(&stub, ROUTES, &add(&by("10.0.0.1"), false)), "object already exists");
    let other = change(json!({"remove": [fast], "add": [by("10.0.0.2")]}), false);
    assert_eq!(refusal(&stub, ROUTES, &other), "", "one takes the other's place");
    assert_eq!(routes(&stub), [[said[1]]; 2]);
    assert_eq!(refusal(&stub, ROUTES, &remove(&by("10.0.0.2"), true)), "");
    assert_eq!(routes(&stub), [none.clone(), vec![said[1].to_owned()]]);
    assert_eq!(refusal(&stub, ROUTES, &remove(&by("10.0.0.2"), true)), "object not found");
    assert_eq!(refusal(&stub, ROUTES, &remove(&by("10.0.0.2"), false)), "");
    assert_eq!(routes(&stub), [none.clone(), none]);
    let end = json!({"destination": "10.9.0.0/16", "kind": "blackhole"});
    let both = change(json!({"add": [end, by("10.0.0.1")]}), false);
    assert_eq!(refusal(&stub, ROUTES, &both), "invalid value");
    let no = change(json!({"add": [by("10.0.0.1")]}), false);
    assert_eq!(refusal(&stub, "PATCH /v1/netstacks/no/routes", &no), "object not found");
    assert_eq!(refusal(&stub, ROUTES, &change(json!({"flush": []}), false)), "invalid argument");
}

fn filters(stub: &Stub) -> [Vec<String>; 2] {
    let store = stub.store();
    [&store.active, &store.persistent]
        .map(|model| model.netstacks["web"].filter.iter().map(ToString::to_string).collect())
}

#[test]
fn rules_of_a_filter_come_and_go_together() {
    const FILTER: &str = "PATCH /v1/netstacks/web/filter";
    let stub = two_tenants();
    let change = |change: Value, temporary: bool| json!({"change": change, "temporary": temporary});
    let table = [
        (json!({"add": ["block in all", "pass in on web0 proto tcp from any to any port=80"]}), false, ""),
        (json!({"add": ["block in all"]}), false, "object already exists"),
        (json!({"add": ["@1 count in all"]}), true, ""),
        (json!({"add": ["block in on bob0 all"]}), false, "invalid value"),
        (json!({"add": ["block in all group 3"]}), false, "invalid value"),
        (json!({"add": ["block in al"]}), false, "invalid argument"),
        (json!({"remove": ["block out all"]}), false, "object not found"),
        (json!({"remove": ["@1 count in all"]}), false, "invalid argument"),
        (json!({"flush": ["on"]}), false, "invalid argument"),
        (json!({"remove": ["block in all"]}), true, ""),
        // It is only in what the next start begins with, and goes from there.
        (json!({"remove": ["block in all"], "add": ["count in all"]}), false, ""),
    ];
    for (wanted, temporary, status) in table {
        assert_eq!(refusal(&stub, FILTER, &change(wanted.clone(), temporary)), status, "{wanted}");
    }
    let http = "pass in on web0 proto tcp from any to any port = 80";
    assert_eq!(filters(&stub), [vec!["count in all", http], vec![http, "count in all"]]);
    let (status, answer) = send(&stub, "GET /v1/netstacks/web/filter", &Value::Null);
    assert_eq!((status, &answer["rules"][1]["rule"]), (200, &json!(http)), "{answer}");
    assert_eq!(
        refusal(&stub, FILTER, &change(json!({"flush": ["in", "out"], "add": ["block out all"]}), false)),
        ""
    );
    assert_eq!(filters(&stub), [["block out all"]; 2]);
    assert_eq!(
        refusal(&stub, "PATCH /v1/netstacks/no/filter", &change(json!({}), false)),
        "object not found"
    );
    assert_eq!(send(&stub, "GET /v1/netstacks/no/filter", &Value::Null).0, 404);
    // What a rule names stays.
    assert_eq!(refusal(&stub, FILTER, &change(json!({"add": ["block in on web0 all"]}), false)), "");
    assert_eq!(refusal(&stub, "DELETE /v1/ifs/web0", &Value::Null), "invalid value");
}

/// A lease that brings this name server.
fn leased(server: &str) -> Leased {
    Leased {
        state: AddressState::Ok,
        prefix: None,
        deprecated: false,
        resolvers: ResolverInfo { name_servers: vec![server.parse().unwrap()], domains: Vec::new() },
        info: LeaseInfo::default(),
    }
}

#[test]
fn the_interface_that_is_called_primary_last_is_it() {
    let mut stub = two_tenants();
    let leases = [("web0/d", "10.0.0.53"), ("web1/d", "10.1.0.53"), ("lab0/d", "10.2.0.53")];
    stub.leased = leases.map(|(name, server)| (name.parse().unwrap(), leased(server))).into();
    let first_servers = |stub: &Stub, netstack: &str| {
        let (_, all) = send(stub, "GET /v1/netstacks", &Value::Null);
        let found = all.as_array().unwrap().iter().find(|it| it["name"] == netstack).unwrap();
        found["resolvers"]["name_servers"].clone()
    };
    let table = [
        ("POST /v1/vnics", json!({"name": "web1", "vnic": {"over": "vswitch1", "netstack": "web"}}), ""),
        ("POST /v1/vnics", json!({"name": "lab0", "vnic": {"over": "vswitch1"}}), ""),
        ("POST /v1/ifs", json!({"name": "lab0", "netstack": "lab"}), ""),
        ("POST /v1/addrs", json!({"name": "web0/d", "address": "dhcp,reqhost=w,primary=yes"}), ""),
        ("POST /v1/addrs", json!({"name": "lab0/d", "address": "dhcp,primary=yes"}), ""),
    ];
    for (line, body, wanted) in table {
        assert_eq!(refusal(&stub, line, &body), wanted, "{line} {body}");
    }
    let dhcp = |model: &Model| {
        let all = model.addresses().map(|(_, name, address)| format!("{name} {address}"));
        all.filter(|it| it.contains("dhcp")).collect::<Vec<_>>()
    };
    assert_eq!(dhcp(&stub.store().active), ["lab0/d dhcp,primary=yes", "web0/d dhcp,reqhost=w,primary=yes"]);
    assert_eq!(first_servers(&stub, "web"), json!(["10.0.0.53"]));
    let taken = json!({"name": "web1/d", "address": "dhcp,primary=yes", "temporary": true});
    assert_eq!(refusal(&stub, "POST /v1/addrs", &taken), "");
    let active = ["lab0/d dhcp,primary=yes", "web0/d dhcp,reqhost=w", "web1/d dhcp,primary=yes"];
    assert_eq!(dhcp(&stub.store().active), active, "of each netstack one");
    assert_eq!(first_servers(&stub, "web"), json!(["10.1.0.53", "10.0.0.53"]));
    assert_eq!(first_servers(&stub, "lab"), json!(["10.2.0.53"]));
    let (_, addrs) = send(&stub, "GET /v1/addrs", &Value::Null);
    let primary = addrs.as_array().unwrap().iter().filter(|it| it["lease"]["primary"] == true);
    assert_eq!(primary.map(|it| &it["name"]).collect::<Vec<_>>(), ["lab0/d", "web1/d"]);
    let kept = ["lab0/d dhcp,primary=yes", "web0/d dhcp,reqhost=w,primary=yes"];
    assert_eq!(dhcp(&stub.store().persistent), kept, "until the next start alone");
    let two = "[etherstub.s0]\n[vnic.a0]\nover = \"s0\"\nnetstack = \"n\"\n[vnic.a1]\nover = \"s0\"\nnetstack = \"n\"\n\
        [netstack.n.addresses]\n\"a0/d\" = \"dhcp,primary=yes\"\n\"a1/d\" = \"dhcp,primary=yes\"\n";
    let fault = Model::from_toml("f", two).unwrap_err()[0].to_string();
    assert!(fault.contains("a1/d") && fault.ends_with("a0/d is the primary one already"), "{fault}");
}

#[test]
fn the_properties_of_all_are_those_of_each() {
    let stub = two_tenants();
    for (kind, names) in [("link", &["vswitch1", "alice0", "bob0", "web0"][..]), ("flow", &["iperf"])] {
        let each = |name: &&str| {
            let (status, properties) = send(&stub, &format!("GET /v1/{kind}s/{name}/props"), &Value::Null);
            assert_eq!(status, 200);
            json!({"name": name, "properties": properties})
        };
        let all = send(&stub, &format!("GET /v1/{kind}-props"), &Value::Null);
        assert_eq!(all, (200, names.iter().map(each).collect()));
    }
    // Who goes meanwhile is missing, and nobody else is.
    assert_eq!(send(&stub, "DELETE /v1/flows/iperf", &Value::Null).0, 200);
    assert_eq!(send(&stub, "GET /v1/flow-props", &Value::Null), (200, json!([])));
}

#[test]
fn who_is_not_there_is_told_so_also_if_nothing_is_to_change() {
    let stub = two_tenants();
    for (line, wanted) in [
        ("PATCH /v1/links/nosuch0/props", "object not found"),
        ("PATCH /v1/flows/nosuch/props", "object not found"),
        ("PATCH /v1/ifs/nosuch0/props", "Interface does not exist"),
        ("PATCH /v1/ifs/alice0/props", "Interface does not exist"),
        ("PATCH /v1/addrprops/nosuch0/v4", "Object not found"),
        ("PATCH /v1/netstacks/nosuch/props", "object not found"),
        ("PATCH /v1/netstacks/nosuch/nat/limits", "object not found"),
        ("PATCH /v1/wires/nosuch0", "object not found"),
        ("PATCH /v1/links/alice0/props", ""),
        ("PATCH /v1/ifs/web0/props", ""),
    ] {
        assert_eq!(refusal(&stub, line, &json!({ "props": {} })), wanted, "{line}");
    }
}

#[test]
fn what_is_said_twice_in_a_body_is_refused() {
    let stub = two_tenants();
    let before = stub.store();
    for (line, body, twice) in [
        ("PUT /v1/model", r#"{"etherstub":{"a0":{},"b0":{},"a0":{"mtu":1500}}}"#, "\"a0\""),
        ("PUT /v1/model", r#"{"etherstub":{"a0":{}},"etherstub":{}}"#, "\"etherstub\""),
        ("POST /v1/plan", r#"{"netstack":{"web":{"pools":{"1":[],"1":[]}}}}"#, "\"1\""),
        ("PATCH /v1/links/alice0/props", r#"{"props":{"maxbw":"5M","max\u0062w":"6M"}}"#, "\"maxbw\""),
        ("POST /v1/etherstubs", r#"{"name":"e0","name":"e1"}"#, "\"name\""),
    ] {
        let (method, path) = line.split_once(' ').unwrap();
        let method = Method::from_word(method).unwrap();
        let response = dispatch(&stub, &Request { method, path, query: "", body: body.as_bytes() });
        let told: Value = serde_json::from_slice(&response.body).unwrap();
        let allowed = told["allowed"].as_str().unwrap();
        assert!(
            response.status == 400 && allowed.contains(twice) && allowed.contains("once"),
            "{body}: {told}"
        );
    }
    assert_eq!(stub.store(), before);
}
