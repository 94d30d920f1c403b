//! Requests to the management interface, over a host without an engine.
//!
//! Whatever method, path, query and body: an answer with a known status and a JSON body, a model that is still
//! valid, and one that is unchanged if the request was refused.

use std::sync::LazyLock;

use firelane_api::{Method, PlanStep, Request, Stub, dispatch};
use firelane_model::Model;

use crate::feedback::note;

static EXAMPLE: LazyLock<Model> = LazyLock::new(|| {
    let text = include_str!("../../../../examples/two-tenants.toml");
    Model::from_toml("two-tenants.toml", text).expect("the example is valid")
});

/// The model of the demo.
pub(super) fn example() -> Model {
    EXAMPLE.clone()
}

pub(super) fn planner(wanted: &Model, present: &Model) -> Vec<PlanStep> {
    let steps = firelane_plan::plan(wanted, present);
    steps
        .iter()
        .map(|step| PlanStep { effect: step.effect.to_string(), step: step.to_string(), lines: step.lines() })
        .collect()
}

/// Requests, one behind the other: a line `METHOD path?query`, lines of body, and an empty line between two.
pub fn target_api(data: &[u8]) {
    let stub = Stub::new(example(), planner);
    let text = String::from_utf8_lossy(data);
    for request in text.split("\n\n").take(20) {
        let (line, body) = request.split_once('\n').unwrap_or((request, ""));
        send(&stub, line, body.as_bytes());
    }
}

fn send(stub: &Stub, line: &str, body: &[u8]) {
    let (word, target) = line.split_once(' ').unwrap_or(("GET", line));
    let method = Method::from_word(word).unwrap_or(Method::Get);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let before = stub.store();
    let response = dispatch(stub, &Request { method, path, query, body });
    let after = stub.store();
    assert!((200..600).contains(&response.status), "{}", response.status);
    assert_ne!(response.status, 500, "our own fault: {:?}", String::from_utf8_lossy(&response.body));
    let json: Result<serde_json::Value, _> = serde_json::from_slice(&response.body);
    assert!(response.body.is_empty() || json.is_ok(), "the body is JSON");
    for model in [&after.active, &after.persistent] {
        assert_eq!(model.validate(), [], "after {line}");
    }
    let unchanged = before.active == after.active && before.persistent == after.persistent;
    assert!(unchanged || response.status < 300, "a refused request changed something: {line}");
    note((word.len(), path.split('/').nth(2).map(str::len), response.status, unchanged));
}
