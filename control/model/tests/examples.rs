//! The files under `examples/` are models and say what their pages promise; so is the one in the manual.

use firelane_model::{LinkClass, Model, VnicUser};

fn two_tenants() -> Model {
    let text = include_str!("../../../examples/two-tenants.toml");
    Model::from_toml("examples/two-tenants.toml", text).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

#[test]
fn two_tenants_is_what_the_demo_needs() {
    let model = two_tenants();
    assert_eq!(model.class_of("vswitch1"), Some(LinkClass::Etherstub));
    assert_eq!(model.vnics_over("vswitch1").count(), 3);
    let addresses: Vec<_> = model.addresses().map(|(_, name, address)| format!("{name} {address}")).collect();
    assert_eq!(addresses, ["web0/v4 10.0.0.10/24", "web0/v6 fd00::10/64"]);
    for (vnic, namespace, v4) in [("alice0", "alice", "10.0.0.1/24"), ("bob0", "bob", "10.0.0.2/24")] {
        let VnicUser::Tap(tap) = &model.vnics[vnic].user else { panic!("{vnic} has no TAP") };
        assert_eq!(tap.namespace.as_ref().unwrap().as_str(), namespace);
        assert_eq!(tap.addresses[0].to_string(), v4);
    }
    let flow = &model.flows["iperf"];
    assert_eq!(flow.matching.to_string(), "transport=tcp,local_port=5201");
    assert_eq!(flow.maxbw.unwrap().to_string(), "50");
}

#[test]
fn an_example_dumped_reads_back() {
    let model = two_tenants();
    let text = model.to_toml();
    assert_eq!(Model::from_toml("dump", &text), Ok(model), "{text}");
}

#[test]
fn the_manual_shows_a_file_that_is_right() {
    let page = include_str!("../../../docs/man/firelane.toml.5.md");
    let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let model = Model::from_toml("firelane.toml.5.md", text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    assert_eq!(model.link_names().count(), 7);
}
