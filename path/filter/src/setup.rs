//! What a filter follows, made before a lane does so: rules and pools are handed over whole, and shared by all filters that follow them.
//!
//! Used for sockets, of which a program has thousands with the same rules (`path/lane/src/stacks/admission.rs`). Whoever gives a filter
//! another setup compares it with the one before ([`FilterSetup::compare`]), and keeps that one until no lane follows it any more.

use std::sync::Arc;

use crate::pools::Pools;
use crate::rules::RuleList;
use crate::{FilterConfig, FilterRule, LinkId};

/// Rules and pools that do not change.
#[derive(Debug)]
pub struct FilterSetup {
    pub(crate) rules: Arc<RuleList>,
    pub(crate) pools: Arc<Pools>,
}

impl Default for FilterSetup {
    fn default() -> Self {
        Self::new(FilterConfig::default(), (0, 0))
    }
}

impl FilterSetup {
    /// From rules in their order; `key` is a secret for pools, which peers' addresses are looked up in.
    pub fn new(FilterConfig { rules, pools }: FilterConfig, key: (u64, u64)) -> Self {
        let mut own = Pools::new(key);
        own.fill(pools);
        Self { rules: Arc::new(RuleList::new(rules)), pools: Arc::new(own) }
    }

    /// Compares it with the one whose place it takes, before anybody follows it.
    pub fn compare(&mut self, old: &Self) {
        if let Some(rules) = Arc::get_mut(&mut self.rules) {
            rules.compare(&old.rules);
        }
    }

    /// Its rules, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &FilterRule<LinkId>> {
        self.rules.rules()
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FOREVER, Filter, RuleCount};
    use firelane_units::{BlockAnswer, Direction, FilterAction};

    fn setup(ttls: &[u8], pools: &[u32]) -> FilterSetup {
        let rule = |ttl: &u8| {
            let mut rule = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
            rule.matching.ttl = Some(*ttl);
            rule
        };
        let network = "10.0.0.0/8".parse().unwrap();
        let pools = pools.iter().map(|&pool| (pool, vec![(network, FOREVER)])).collect();
        FilterSetup::new(FilterConfig { rules: ttls.iter().map(rule).collect(), pools }, (1, 2))
    }

    /// Nothing is copied, and what was compared before is not compared again; what a rule has met that stays, stays.
    #[test]
    fn a_setup_is_followed_whole_and_its_rules_are_compared_before() {
        let first = setup(&[1, 2, 2], &[7, 8]);
        let mut filters = [(); 2].map(|()| Filter::new([(3, 4); 2], 0));
        filters.iter_mut().for_each(|filter| filter.follow_setup(&first));
        assert!(Arc::strong_count(&first.rules) > 2 && Arc::strong_count(&first.pools) == 3);
        filters[0].rules.count(2, 60);
        let mut second = setup(&[2, 3, 2], &[]);
        second.compare(&first);
        assert!(second.rules.continues(&first.rules) && !second.is_empty());
        filters.iter_mut().for_each(|filter| filter.follow_setup(&second));
        let (met, none) = (RuleCount { packets: 1, bytes: 60 }, RuleCount::default());
        assert_eq!(filters[0].counts().rules, [none, none, met]);
        assert_eq!(
            (Arc::strong_count(&first.rules), Arc::strong_count(&first.pools)),
            (1, 1),
            "it is nobody's"
        );
        assert_eq!((filters[1].pooled(), FilterSetup::default().is_empty()), (0, true));
    }
}
