//! What becomes permanent when a whole configuration is applied: what is in force until the next start, and is wanted.
//!
//! Called by hosts that plan (`Api::plan`, `Api::apply`). The steps of a plan say what changes of what is in force. What is kept may
//! differ from that, so the rest of its way to what shall be kept is said beside them.

use firelane_model::Model;
use serde_json::Value;

use crate::{PlanStep, Store};

impl Store {
    /// What is kept, changed already as the plan from what is in force to `next` says. What is left from there to what `next` keeps
    /// becomes permanent, and nothing of that plan says so.
    pub fn kept_beside(&self, next: &Self) -> Model {
        let read = [&self.persistent, &self.active, &next.active].map(serde_json::to_value);
        let [Ok(kept), Ok(is), Ok(shall)] = read else { return self.persistent.clone() };
        // Rather too much is said than too little where what both have is no whole.
        serde_json::from_value(changed(kept, &is, &shall)).unwrap_or_else(|_| self.persistent.clone())
    }
}

/// `kept` with what differs between `is` and `shall`.
fn changed(kept: Value, is: &Value, shall: &Value) -> Value {
    let (Value::Object(mut kept), Value::Object(is), Value::Object(shall)) = (kept, is, shall) else {
        return shall.clone();
    };
    for (key, is) in is.iter().filter(|(key, is)| shall.get(*key) != Some(is)) {
        match (kept.remove(key), shall.get(key)) {
            (_, None) => {}
            // An object that is not kept becomes permanent as a whole.
            (None, Some(Value::Object(_))) if is.is_object() => {}
            (None, Some(shall)) => drop(kept.insert(key.clone(), shall.clone())),
            (Some(before), Some(shall)) => drop(kept.insert(key.clone(), changed(before, is, shall))),
        }
    }
    kept.extend(
        shall.iter().filter(|(key, _)| !is.contains_key(*key)).map(|(key, it)| (key.clone(), it.clone())),
    );
    Value::Object(kept)
}

/// The steps from there as a plan says them: traffic feels nothing of them. What is made anew is said once.
pub fn made_permanent(steps: Vec<PlanStep>) -> Vec<PlanStep> {
    let goes = |it: &PlanStep| ["delete ", "remove ", "stop "].iter().any(|word| it.step.starts_with(word));
    let kept = steps.into_iter().filter(|it| it.effect != "recreate" || !goes(it));
    kept.map(|it| PlanStep {
        effect: "live".to_owned(),
        step: format!("make permanent: {}", it.step),
        lines: it.lines,
    })
    .collect()
}
