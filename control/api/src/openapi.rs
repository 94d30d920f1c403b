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
