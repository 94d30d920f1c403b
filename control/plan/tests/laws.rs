//! The four laws of plans over generated models, and what a few plans say.

use firelane_model::{LinkName, Model};
use firelane_plan::{Action, Effect, apply_to_model, plan, render};
use proptest::collection::vec;
use proptest::prelude::*;

/// Of up to so many bytes that the last of what a model is made of, flows, services and wires, are drawn as often as the first.
fn models() -> impl Strategy<Value = (Model, Model)> {
    // Half of the pairs share a prefix of their bytes and so differ in little.
    (vec(any::<u8>(), 60..500), vec(any::<u8>(), 60..500), any::<bool>(), any::<prop::sample::Index>())
        .prop_map(|(a, b, near, at)| {
            let mut changed = a.clone();
            let at = at.index(a.len());
            changed[at] = changed[at].wrapping_add(1);
            (firelane_models::model(&a), firelane_models::model(if near { &changed } else { &b }))
        })
}

/// The names of the objects that an action is about, for the law of least change.
fn subject(action: &Action) -> (&'static str, String) {
    match action {
        Action::StopService(n) | Action::StartService(n, _) | Action::SetService(n, ..) => {
            ("service", n.to_string())
        }
        Action::RemoveFlow(n) | Action::AddFlow(n, _) | Action::SetFlow(n, ..) => ("flow", n.to_string()),
        Action::DeleteVnic(n) | Action::CreateVnic(n, _) | Action::SetVnic(n, ..) => ("link", n.to_string()),
        Action::DeleteEtherstub(n) | Action::CreateEtherstub(n, _) | Action::SetEtherstub(n, ..) => {
            ("link", n.to_string())
        }
        Action::DeleteLink(n) | Action::CreateLink(n, _) | Action::SetLink(n, ..) => ("link", n.to_string()),
        Action::DeleteWire(n) | Action::CreateWire(n, _) | Action::SetWire(n, ..) => ("wire", n.to_string()),
        Action::SetInterface(_, n, ..) => ("interface", n.to_string()),
        Action::RemoveAddress(_, n) | Action::AddAddress(_, n, _) | Action::SetAddress(_, n, ..) => {
            ("address", n.to_string())
        }
        Action::SetDaemon(..) => ("daemon", String::new()),
        Action::RemoveRoute(n, _) | Action::AddRoute(n, _) => ("netstack", n.to_string()),
        Action::DeleteNetstack(n)
        | Action::CreateNetstack(n, ..)
        | Action::SetCpus(n, ..)
        | Action::SetTunables(n, ..)
        | Action::SetPrograms(n, ..)
        | Action::SetFpm(n, ..)
        | Action::SetFilter(n, ..) => ("netstack", n.to_string()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_model_needs_no_steps_to_itself((model, _) in models()) {
        prop_assert_eq!(plan(&model, &model), vec![]);
    }

    #[test]
    fn the_steps_give_what_is_wanted_and_every_stage_is_valid((wanted, present) in models()) {
        let mut stage = present.clone();
        for step in plan(&wanted, &present) {
            apply_to_model(&mut stage, &step);
            prop_assert_eq!(stage.validate(), vec![], "after {}", step);
            prop_assert!(!step.to_string().contains('\n') && step.to_string().len() > 8);
        }
        prop_assert_eq!(stage, wanted);
    }

    #[test]
    fn a_step_is_known_to_change_something_by_its_object_alone((wanted, present) in models()) {
        for step in plan(&wanted, &present) {
            for model in [&wanted, &present, &Model::default()] {
                let mut after = model.clone();
                apply_to_model(&mut after, &step);
                prop_assert_eq!(step.would_change(model), after != *model, "{}", step);
            }
        }
    }

    #[test]
    fn what_stays_equal_and_rests_on_nothing_changed_is_not_touched((wanted, present) in models()) {
        let touched: Vec<_> = plan(&wanted, &present).iter().map(|step| subject(&step.action)).collect();
        // With another number of lanes of its own it is another netstack.
        let lanes = |model: &Model, name| model.netstacks.get(name).map(|it| it.cpus.numbers().count());
        let stays = |name| lanes(&wanted, name) == lanes(&present, name);
        for (name, is) in &present.etherstubs {
            let same = wanted.etherstubs.get(name) == Some(is);
            prop_assert!(!same || !touched.contains(&("link", name.to_string())), "{}", name);
        }
        for (name, is) in &present.wires {
            let lower = |model: &Model, end: &LinkName| (model.links.get(end).cloned(), model.etherstubs.get(end).cloned());
            let ends = |model: &Model| is.ends.each_ref().map(|end| {
                let vnic = model.vnics.get(end).cloned();
                let over = vnic.as_ref().and_then(|vnic| vnic.over.link()).unwrap_or(end).clone();
                (vnic, lower(model, &over))
            });
            let same = wanted.wires.get(name) == Some(is) && ends(&wanted) == ends(&present);
            prop_assert!(!same || !touched.contains(&("wire", name.to_string())), "{}", name);
        }
        for (name, is) in &present.vnics {
            let below = |model: &Model| {
                let over = is.over.link()?;
                Some((model.links.get(over).cloned(), model.etherstubs.get(over).cloned()))
            };
            let same = wanted.vnics.get(name) == Some(is)
                && below(&wanted) == below(&present)
                && is.netstack().is_none_or(stays);
            prop_assert!(!same || !touched.contains(&("link", name.to_string())), "{}", name);
        }
        for (name, is) in &present.flows {
            let link = ("link", is.link.to_string());
            let same = wanted.flows.get(name) == Some(is) && !touched.contains(&link);
            prop_assert!(!same || !touched.contains(&("flow", name.to_string())), "{}", name);
        }
        for (name, is) in &present.services {
            let same = wanted.services.get(name) == Some(is) && stays(&is.netstack);
            prop_assert!(!same || !touched.contains(&("service", name.to_string())), "{}", name);
        }
    }
}

fn two_tenants(edit: impl Fn(String) -> String) -> Model {
    let text = edit(include_str!("../../../examples/two-tenants.toml").to_owned());
    Model::from_toml("two-tenants.toml", &text).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

#[test]
fn a_wire_changes_live_and_is_made_anew_between_others_or_with_another_seed() {
    let text = "[etherstub.a0]\n[etherstub.b0]\n[etherstub.c0]\n[wire.w0]\nends = ['a0', 'b0']\nboth = { delay = '20ms' }\n";
    let model =
        |text: &str| Model::from_toml("wire.toml", text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let present = model(text);
    let steps = |wanted: &str| render(&plan(&model(wanted), &present));
    assert_eq!(
        render(&plan(&present, &Model::default())).lines().last(),
        Some("live      create wire w0 from a0 to b0: delay=20ms")
    );
    assert_eq!(
        steps(
            &text.replace("both = { delay = '20ms' }", "forth = { delay = '20ms' }\nback = { loss = '1%' }")
        ),
        "live      set wire w0 back.loss 0% -> 1%, back.delay 20ms -> 0\n"
    );
    let anew = "recreate  delete wire w0\nrecreate  create wire w0 from a0 to c0: delay=20ms\n";
    assert_eq!(steps(&text.replace("'a0', 'b0'", "'a0', 'c0'")), anew);
    assert_eq!(steps(&format!("{text}seed = 3\n")).lines().count(), 2);
    let stub = "ends      delete wire w0\nends      delete etherstub b0\n";
    assert_eq!(steps("[etherstub.a0]\n[etherstub.c0]\n"), stub);
}

#[test]
fn from_nothing_everything_is_built_from_the_bottom() {
    let steps = plan(&two_tenants(|text| text), &Model::default());
    let want = "\
live      create netstack web
live      create etherstub vswitch1
live      create vnic alice0 over vswitch1 for tap alice0 in namespace alice
live      create vnic bob0 over vswitch1 for tap bob0 in namespace bob
live      create vnic web0 over vswitch1 for netstack web
live      add address web0/v4 10.0.0.10/24 to netstack web
live      add address web0/v6 fd00::10/64 to netstack web
live      add flow iperf on bob0: transport=tcp,local_port=5201 maxbw=50M
live      start service files on netstack web port 80
";
    assert_eq!(render(&steps), want);
    assert_eq!(render(&plan(&Model::default(), &two_tenants(|text| text))).lines().count(), 9);
}

/// No step promises what a limit does not have: down first, then the limits, then up.
#[test]
fn guarantees_are_lowered_before_limits_change_and_raised_after() {
    let host = |stub: &str, alice: &str, bob: &str| {
        two_tenants(|text| {
            let text =
                text.replace("[etherstub.vswitch1]", &format!("[etherstub.vswitch1]\nmaxbw = \"{stub}\""));
            let text = text.replace("[vnic.alice0]", &format!("[vnic.alice0]\nminbw = \"{alice}\""));
            text.replace("[vnic.bob0]", &format!("[vnic.bob0]\nminbw = \"{bob}\""))
        })
    };
    let present = host("100M", "60M", "40M");
    let want = "\
live      set vnic alice0 minbw 60M -> 10M
live      set vnic bob0 minbw 40M -> 90M
";
    assert_eq!(render(&plan(&host("100M", "10M", "90M"), &present)), want);
    let want = "\
live      set vnic alice0 minbw 60M -> 10M
live      set etherstub vswitch1 maxbw 100M -> 60M
live      set vnic bob0 minbw 40M -> 50M
";
    assert_eq!(render(&plan(&host("60M", "10M", "50M"), &present)), want);
}

#[test]
fn lanes_move_between_cpus_live_but_another_number_of_them_is_another_start() {
    let host = |daemon: &str| two_tenants(|text| format!("[daemon]\n{daemon}\n{text}"));
    let here = host("lanes = 2");
    let step = |to: &str| render(&plan(&host(to), &here));
    assert_eq!(step("lanes = 2\ncpus = \"0,2-3\""), "live      set daemon cpus -- -> 0,2,3\n");
    assert_eq!(
        step("lanes = 3\ncpus = \"1\""),
        "restart   set daemon lanes 2 -> 3\nlive      set daemon cpus -- -> 1\n"
    );
}

#[test]
fn what_ends_connections_is_never_live() {
    let here = two_tenants(|text| text);
    let nothing = render(&plan(&Model::default(), &here));
    let ends = "ends      stop service files\nlive      remove flow iperf\nends      remove address web0/v4 of netstack web\n";
    assert!(nothing.starts_with(ends), "{nothing}");
    let rest = nothing.lines().filter(|line| !line.contains("flow iperf"));
    assert!(rest.clone().count() > 5 && rest.clone().all(|line| line.starts_with("ends ")), "{nothing}");
    let moved = two_tenants(|text| text.replace("[vnic.web0]", "[vnic.web0]\nmac = \"2:8:20:0:0:9\""));
    let moved = render(&plan(&moved, &here));
    assert!(moved.contains("recreate  delete vnic web0\n") && !moved.contains("live "), "{moved}");
}

#[test]
fn each_setting_of_the_daemon_is_carried_out_or_fails_alone() {
    let wanted =
        Model::from_toml("test", "[daemon]\ncpus = '1'\nslice = '3ms'\naccounting = { file = '/none' }\n")
            .unwrap();
    let steps = plan(&wanted, &Model::default());
    assert_eq!(steps.len(), 3);
    for failed in &steps {
        let mut is = Model::default();
        steps.iter().filter(|step| *step != failed).for_each(|step| apply_to_model(&mut is, step));
        assert_eq!(
            plan(&wanted, &is).iter().map(ToString::to_string).collect::<Vec<_>>(),
            [failed.to_string()]
        );
        // Who changes another setting meanwhile changes nothing of what is wanted still.
        is.daemon.lanes = firelane_model::Lanes::Count(2);
        apply_to_model(&mut is, failed);
        assert!(is.daemon != wanted.daemon && is.daemon.changes(&wanted.daemon).count() == 1);
    }
}

#[test]
fn a_limit_changes_live_and_a_vlan_means_a_new_vnic_with_its_flow() {
    let present = two_tenants(|text| text);
    let limit = two_tenants(|text| text.replace("50M", "100M"));
    assert_eq!(render(&plan(&limit, &present)), "live      set flow iperf maxbw 50M -> 100M\n");
    let vlan = two_tenants(|text| text.replace("[vnic.bob0]", "[vnic.bob0]\nvlan = 7"));
    let want = "\
recreate  remove flow iperf
recreate  delete vnic bob0
recreate  create vnic bob0 over vswitch1 for tap bob0 in namespace bob
recreate  add flow iperf on bob0: transport=tcp,local_port=5201 maxbw=50M
";
    assert_eq!(render(&plan(&vlan, &present)), want);
    assert_eq!(render(&plan(&present, &present)), "no changes\n");
}

#[test]
fn interfaces_and_addresses_change_while_they_are_in_use() {
    let present = two_tenants(|text| text);
    let said = |words: &str| two_tenants(|text| format!("{text}\n[netstack.web.interfaces.web0]\n{words}\n"));
    let on = said("ipv4 = { forwarding = \"on\", mtu = 1400 }");
    let wanted =
        "live      set interface web0 of netstack web ipv4.forwarding -- -> on, ipv4.mtu -- -> 1400\n";
    assert_eq!(render(&plan(&on, &present)), wanted);
    let back = "live      set interface web0 of netstack web ipv4.forwarding on -> --, ipv4.mtu 1400 -> --\n";
    assert_eq!(render(&plan(&present, &on)), back);
    assert_eq!(plan(&said(""), &present), [], "an empty table says nothing");
    let retired = two_tenants(|text| text.replace("\"10.0.0.10/24\"", "\"10.0.0.10/16,deprecated=on\""));
    let wanted = "live      set address web0/v4 of netstack web 10.0.0.10/24 -> 10.0.0.10/16,deprecated=on\n";
    assert_eq!(render(&plan(&retired, &present)), wanted);
    // A VNIC that is made anew gets what is said of it again.
    let vlan = |model: &str| said(model).to_toml().replace("[vnic.web0]", "[vnic.web0]\nvlan = 7");
    let vlan = Model::from_toml("f", &vlan("ipv4 = { forwarding = \"on\" }")).unwrap();
    let steps = render(&plan(&vlan, &said("ipv4 = { forwarding = \"on\" }")));
    let place = |text: &str| steps.find(text).unwrap_or_else(|| panic!("{text}\n{steps}"));
    assert!(place("forwarding on -> --") < place("delete vnic web0"), "{steps}");
    assert!(place("create vnic web0") < place("forwarding -- -> on"), "{steps}");
}

/// One of a netstack's interfaces is the primary one at any time, whichever of them comes first by name.
#[test]
fn who_is_primary_no_more_says_so_before_another_is() {
    let host = |first: &str, second: &str| {
        let text = format!(
            "[etherstub.s0]\n[netstack.web.addresses]\n'a0/d' = 'dhcp{first}'\n'b0/d' = 'dhcp{second}'\n\
             [vnic.a0]\nover = 's0'\nnetstack = 'web'\n[vnic.b0]\nover = 's0'\nnetstack = 'web'\n"
        );
        Model::from_toml("test", &text).unwrap_or_else(|faults| panic!("{faults:#?}"))
    };
    let (one, other) = (host(",primary=yes", ""), host("", ",primary=yes"));
    let down = "live      set address b0/d of netstack web dhcp,primary=yes -> dhcp\n";
    let up = "live      set address a0/d of netstack web dhcp -> dhcp,primary=yes\n";
    assert_eq!(render(&plan(&one, &other)), format!("{down}{up}"));
}

/// Who has no address as yet chooses one that nobody has, so those whose addresses are said come first: after a rename, the one that
/// is called as another once was would choose its address.
#[test]
fn vnics_whose_addresses_are_said_are_made_first() {
    let bob = |text: String| text.replace("[vnic.bob0]", "[vnic.bob0]\nmac = \"2:8:20:1:2:3\"");
    let steps = render(&plan(&two_tenants(bob), &Model::default()));
    let place = |text: &str| steps.find(text).unwrap_or_else(|| panic!("{text}\n{steps}"));
    assert!(place("create vnic bob0") < place("create vnic alice0"), "{steps}");
    assert!(place("create vnic alice0") < place("create vnic web0"), "{steps}");
}

#[test]
fn what_a_route_says_of_congestion_control_changes_in_its_place() {
    const AT: &str = "[netstack.web.addresses]";
    let with = |control: &str| {
        let route = format!("routes = [{{ destination = 'default', gateway = '10.0.0.254'{control} }}]");
        two_tenants(|text| text.replace(AT, &format!("[netstack.web]\n{route}\n{AT}")))
    };
    let (plain, bbr) = (with(""), with(", congestion_control = 'bbr'"));
    let way = "0.0.0.0/0 via 10.0.0.254";
    for (present, wanted, said) in [(&plain, &bbr, " congestion_control bbr"), (&bbr, &plain, "")] {
        let steps = plan(wanted, present);
        assert_eq!(render(&steps), format!("live      add route {way}{said} to netstack web\n"));
        let mut after = present.clone();
        steps.iter().for_each(|step| apply_to_model(&mut after, step));
        assert_eq!(after, *wanted);
    }
    let gone = two_tenants(|text| text);
    let want = format!("live      remove route {way} congestion_control bbr of netstack web\n");
    assert_eq!(render(&plan(&gone, &bbr)), want);
}

#[test]
fn an_mtu_shrinks_from_the_top() {
    let mtus = |stub: u16, vnic: u16| {
        two_tenants(|text| {
            let text = text.replace("[etherstub.vswitch1]", &format!("[etherstub.vswitch1]\nmtu = {stub}"));
            text.replace("[vnic.bob0]", &format!("[vnic.bob0]\nmtu = {vnic}"))
        })
    };
    let down = plan(&mtus(1500, 1400), &mtus(9000, 8000));
    let want =
        "brief     set vnic bob0 mtu 8000 -> 1400\nlive      set etherstub vswitch1 mtu 9000 -> 1500\n";
    assert_eq!(render(&down), want);
    let up = plan(&mtus(9000, 8000), &mtus(1500, 1400));
    assert!(render(&up).starts_with("live      set etherstub"), "{}", render(&up));
    assert_eq!(up.iter().map(|step| step.effect).collect::<Vec<_>>(), [Effect::Live, Effect::Brief]);
}

#[test]
fn a_netstacks_lanes_move_live_and_another_number_of_them_is_another_netstack() {
    const AT: &str = "[netstack.web.addresses]";
    let with = |said: &str| two_tenants(|text| text.replace(AT, &format!("[netstack.web]\n{said}\n{AT}")));
    let (shared, one, other, both) = (with(""), with("cpus = '1'"), with("cpus = '0'"), with("cpus = '0-1'"));
    assert_eq!(render(&plan(&other, &one)), "live      set netstack web cpus 1 -> 0\n");
    for (wanted, present) in [(&one, &shared), (&both, &one), (&shared, &both)] {
        let steps = plan(wanted, present);
        assert!(steps.iter().all(|step| step.effect == Effect::Recreate), "{}", render(&steps));
        let lines = render(&steps);
        for part in [
            "stop service files",
            "delete vnic web0",
            "delete netstack web",
            "create netstack web",
            "create vnic web0",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(!lines.contains("alice0") && !lines.contains("vswitch1\n"), "{lines}");
    }
    assert!(render(&plan(&both, &Model::default())).contains("live      create netstack web on cpus 0,1\n"));
}

#[test]
fn a_filter_changes_live_and_is_shown_rule_by_rule() {
    const AT: &str = "[netstack.web.addresses]";
    let with = |said: &str| two_tenants(|text| text.replace(AT, &format!("[netstack.web]\n{said}\n{AT}")));
    let open = with("");
    let present = with("filter = ['block in all', 'pass in on web0 proto icmp all']");
    let wanted = with(
        "filter = ['block in all', 'pass in quick on web0 from pool/5 to any']\npools = { 5 = ['10.0.0.0/8'] }",
    );
    let steps = render(&plan(&wanted, &present));
    let lines = "\
live      set filter of netstack web: rules 1 added, 1 removed; pool/5 1 added
          - pass in on web0 proto icmp from any to any
          + pass in quick on web0 from pool/5 to any
            pool/5 1 added
";
    assert_eq!(steps, lines);
    // From the start the filter is there before the addresses are.
    let steps = render(&plan(&wanted, &Model::default()));
    let place = |text: &str| steps.find(text).unwrap_or_else(|| panic!("{text}\n{steps}"));
    assert!(
        place("create vnic web0") < place("set filter") && place("set filter") < place("add address"),
        "{steps}"
    );
    assert_eq!(render(&plan(&open, &present)).lines().count(), 3);
}

#[test]
fn a_filter_lets_go_of_a_vnic_that_is_made_anew() {
    const AT: &str = "[netstack.web.addresses]";
    let rules = "filter = ['skip 1 in all', 'block in on web0 all', 'pass in proto tcp all']";
    let text = |model: String| model.replace(AT, &format!("[netstack.web]\n{rules}\n{AT}"));
    let present = two_tenants(text);
    let vlan = two_tenants(|it| text(it).replace("[vnic.web0]", "[vnic.web0]\nvlan = 7"));
    let steps = render(&plan(&vlan, &present));
    let lines: Vec<_> = steps.lines().filter(|line| line.contains("rule") || line.contains(" in ")).collect();
    let want = [
        "live      set filter of netstack web: rules 1 added, 2 removed",
        "          - skip 1 in all",
        "          - block in on web0 all",
        "          + count in all",
        "live      set filter of netstack web: rules 2 added, 1 removed",
        "          - count in all",
        "          + skip 1 in all",
        "          + block in on web0 all",
    ];
    assert_eq!(lines, want, "{steps}");
    let place = |text: &str| steps.find(text).unwrap_or_else(|| panic!("{text}\n{steps}"));
    assert!(place("set filter") < place("delete vnic web0"), "{steps}");
    assert!(place("create vnic web0") < steps.rfind("set filter").unwrap(), "{steps}");
}
