//! The page of known differences: for each exchange a heading, what differs, and why.
//!
//! The text between the fences is what the comparison found, word for word; everything else is for the reader. A
//! difference that the page does not have and one that is gone are faults alike.

use std::collections::BTreeMap;

/// What begins and ends the part of the page that is compared.
const FENCE: &str = "```text";
const FENCE_END: &str = "```";
/// Stands where nobody has said why yet.
const UNEXPLAINED: &str = "Nobody has said why yet.";

/// The page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    head: String,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    found: String,
    why: String,
}

impl Page {
    /// Reads the page.
    pub fn parse(text: &str) -> Self {
        let (head, rest) = text.split_once("\n## ").unwrap_or((text, ""));
        let mut page = Self { head: head.trim_end().to_owned(), entries: BTreeMap::new() };
        for section in rest.split("\n## ").filter(|section| !section.trim().is_empty()) {
            let (name, body) = section.split_once('\n').unwrap_or((section, ""));
            let (before, behind) = body.split_once(FENCE).unwrap_or((body, ""));
            let (found, after) = behind.split_once(FENCE_END).unwrap_or((behind, ""));
            let why = format!("{}\n{}", before.trim(), after.trim()).trim().to_owned();
            page.entries.insert(name.trim().to_owned(), Entry { found: found.trim().to_owned(), why });
        }
        page
    }

    /// What the page says of an exchange, if it is there.
    pub fn says(&self, name: &str) -> Option<&String> {
        self.entries.get(name).map(|entry| &entry.found)
    }

    /// What is wrong with the page, given what was found for each exchange.
    pub fn faults(&self, found: &BTreeMap<String, String>) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, found) in found {
            match self.entries.get(name) {
                None => faults.push(format!("{name}: not on the page:\n{found}")),
                Some(entry) if entry.found != *found => {
                    faults.push(format!("{name}: the page says\n{}\nbut it is\n{found}", entry.found));
                }
                Some(entry) if entry.why.is_empty() || entry.why == UNEXPLAINED => {
                    faults.push(format!("{name}: the page does not say why"));
                }
                Some(_) => {}
            }
        }
        let gone = self.entries.keys().filter(|name| !found.contains_key(*name));
        faults.extend(gone.map(|name| format!("{name}: on the page, but there is no difference")));
        faults
    }

    /// The page as it should be; what is new still needs its reason.
    pub fn renewed(&self, found: &BTreeMap<String, String>) -> String {
        let mut text = format!("{}\n", self.head);
        for (name, found) in found {
            let known = self.entries.get(name).map(|entry| entry.why.as_str()).filter(|why| !why.is_empty());
            let why = known.unwrap_or(UNEXPLAINED);
            text.push_str(&format!("\n## {name}\n\n{why}\n\n{FENCE}\n{found}\n{FENCE_END}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_page_has_to_have_exactly_what_was_found_and_why() {
        let page = Page::parse("# Differences\n\nHead.\n\n## one\n\nBecause.\n\n```text\na\n    b\n```\n");
        assert_eq!(page.faults(&found(&[("one", "a\n    b")])), Vec::<String>::new());
        assert!(page.faults(&found(&[("one", "a\n    c")]))[0].contains("the page says"));
        let both = found(&[("one", "a\n    b"), ("two", "x")]);
        assert!(page.faults(&both)[0].contains("not on the page"));
        assert!(page.faults(&found(&[]))[0].contains("there is no difference"));
        let renewed = Page::parse(&page.renewed(&both));
        assert_eq!(renewed.faults(&both), ["two: the page does not say why"]);
        assert_eq!(renewed.head, "# Differences\n\nHead.");
    }
}
