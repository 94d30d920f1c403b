//! A netstack with very many routes is checked, planned and replayed without growing pains.

use firelane_model::Model;
use firelane_plan::{apply_to_model, plan};

/// Many, of which nothing may be done for each beside each.
const ROUTES: usize = 20_000;

/// So many routes: every third ends packets, the others lead to a router and say this about it.
fn host_with(routes: usize, about: &str) -> Model {
    let destination = |nth: usize| format!("destination = '10.{}.{}.0/24'", nth >> 8, nth & 255);
    let end = |nth: usize| match nth % 3 {
        0 => "kind = 'blackhole'".to_owned(),
        _ => format!("gateway = '192.0.2.1'{about}"),
    };
    let routes: String =
        (0..routes).map(|nth| format!("{{ {}, {} }},", destination(nth), end(nth))).collect();
    Model::from_toml("large.toml", &format!("[netstack.web]\nroutes = [{routes}]\n")).expect("a valid host")
}

#[test]
fn very_many_routes_come_change_and_go() {
    let empty = host_with(0, "");
    let plain = host_with(ROUTES, "");
    let others = host_with(ROUTES, ", congestion_control = 'bbr'");
    let led = (0..ROUTES).filter(|nth| nth % 3 != 0).count();
    let mut present = empty.clone();
    for (wanted, count) in [(&plain, ROUTES), (&others, led), (&plain, led), (&empty, ROUTES)] {
        let steps = plan(wanted, &present);
        assert_eq!(steps.len(), count);
        assert!(steps.iter().all(|it| it.would_change(&present) && !it.would_change(wanted)));
        steps.iter().for_each(|it| apply_to_model(&mut present, it));
        assert_eq!(present.validate(), []);
        assert_eq!(present, *wanted);
    }
}
