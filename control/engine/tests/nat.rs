//! A netstack's translation as a program sets it: rules, what they have made, and what is refused.

use firelane::{ChangeError, Engine, EngineConfig, NatConfig, NatCounts, NetstackConfig};
use firelane_units::{LinkId, NatAction, NatLimits, NatPorts, NatRule, NatTarget, NetstackId};

#[test]
fn rules_reach_the_home_lane_and_go_again() {
    for lanes in [1, 3] {
        let engine = Engine::start(&EngineConfig { lanes, ..EngineConfig::default() }).unwrap();
        let netstack = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
        assert_eq!(engine.nat_counts(netstack).unwrap(), NatCounts::default());
        let rule = NatRule::new(LinkId(1), NatAction::Map(NatTarget::OfLink, NatPorts::Same));
        engine.set_nat(netstack, NatConfig { rules: vec![rule; 2], limits: NatLimits::default() }).unwrap();
        assert_eq!(engine.nat_counts(netstack).unwrap().rules.len(), 2, "{lanes} lanes");
        assert!(
            engine.nat_sessions(netstack).unwrap().is_empty() && engine.flush_nat(netstack).unwrap() == 0
        );
        engine.set_nat(netstack, NatConfig::default()).unwrap();
        assert_eq!(engine.nat_counts(netstack).unwrap(), NatCounts::default());
        let nobody = NetstackId(99);
        assert!(matches!(engine.set_nat(nobody, NatConfig::default()), Err(ChangeError::NoNetstack(_))));
        assert!(matches!(engine.nat_sessions(nobody), Err(ChangeError::NoNetstack(_))));
    }
}
