//! The interface as OpenAPI 3.1, generated from the handlers and checked in as `openapi.json`.

use utoipa::OpenApi;

use crate::handlers::Document;

/// The OpenAPI text, pretty-printed.
pub fn openapi_text() -> String {
    let mut text = Document::openapi().to_pretty_json().expect("the document is plain JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::ROUTES;
    use crate::{AccountingChange, IptunChange, VnicChange};
    use firelane_model::{
        Accounting, Conditions, Daemon, Etherstub, Flow, FlowMatch, IfProps, Iptun, Link, Model, Netstack,
        Route, Tap, Vnic,
    };
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

    #[test]
    fn the_text_in_the_tree_is_the_text_of_the_handlers() {
        let text = openapi_text();
        if std::env::var_os("FIRELANE_BLESS").is_some() {
            std::fs::write(CHECKED_IN, &text).unwrap();
        }
        let checked_in = std::fs::read_to_string(CHECKED_IN).unwrap();
        assert!(
            text == checked_in,
            "openapi.json is stale; FIRELANE_BLESS=1 cargo test -p firelane-api writes it"
        );
    }

    #[test]
    fn every_route_is_documented_and_nothing_else_is() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        let mut documented: Vec<_> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(move |method| format!("{} {path}", method.to_uppercase()))
            })
            .collect();
        let mut routed: Vec<_> = ROUTES.iter().map(|r| format!("{} {}", r.method.word(), r.path)).collect();
        documented.sort();
        routed.sort();
        assert_eq!(documented, routed);
    }

    fn reads<T: DeserializeOwned>(value: Value) -> Result<(), String> {
        serde_json::from_value::<T>(value).map(drop).map_err(|error| error.to_string())
    }

    /// Who writes a body by a generated client says nothing of a field as null.
    #[test]
    fn what_may_be_null_is_read_as_nothing() {
        type Read = fn(Value) -> Result<(), String>;
        let bodies: [(&str, Value, Read); 17] = [
            ("Model", json!({}), reads::<Model>),
            ("Daemon", json!({}), reads::<Daemon>),
            ("Accounting", json!({}), reads::<Accounting>),
            ("Link", json!({ "kind": "tap", "ifname": "net0" }), reads::<Link>),
            ("Etherstub", json!({}), reads::<Etherstub>),
            ("Conditions", json!({}), reads::<Conditions>),
            ("Vnic", json!({ "over": "net0" }), reads::<Vnic>),
            ("Tap", json!({}), reads::<Tap>),
            ("Iptun", json!({ "type": "gre" }), reads::<Iptun>),
            ("Netstack", json!({}), reads::<Netstack>),
            ("IfProps", json!({}), reads::<IfProps>),
            ("Route", json!({ "destination": "default", "gateway": "10.0.0.1" }), reads::<Route>),
            ("Flow", json!({ "link": "web0", "match": {} }), reads::<Flow>),
            ("FlowMatch", json!({}), reads::<FlowMatch>),
            ("VnicChange", json!({}), reads::<VnicChange>),
            ("IptunChange", json!({}), reads::<IptunChange>),
            ("AccountingChange", json!({}), reads::<AccountingChange>),
        ];
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let is_null = |it: &Value| it == "null" || it["type"] == "null";
        let may_be_null = |it: &Value| {
            let several = [&it["type"], &it["oneOf"]].into_iter().filter_map(Value::as_array);
            several.flatten().any(is_null)
        };
        let mut asked = 0;
        for (name, whole, read) in bodies {
            assert_eq!(read(whole.clone()), Ok(()), "{name}");
            let fields = document["components"]["schemas"][name]["properties"].as_object();
            for (field, _) in fields.expect(name).iter().filter(|(_, it)| may_be_null(it)) {
                if whole.get(field).is_none() {
                    let mut with = whole.clone();
                    with[field] = Value::Null;
                    assert_eq!(read(with), Ok(()), "{name}.{field}");
                    asked += 1;
                }
            }
        }
        assert!(asked >= 40, "{asked}");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = openapi_text();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        for reference in text.split("\"$ref\": \"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
