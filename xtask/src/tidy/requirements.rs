//! `docs/requirements.md` tells the truth: what a row names is there, and what the README counts is counted.
//!
//! A row is `| id | requirement | obeyed by | shown by |`. Between backquotes stand places: `file::item` names an
//! item of a Rust file, in the last column a test; a packet script or another file stands alone. The third cell begins
//! with "open:" if nobody obeys yet, with "differs:" if something else is done on purpose, with "moot:" if what the
//! requirement speaks of does not exist here; each says what or why. `mod.rs` calls [`check`], `main.rs` prints
//! [`summary`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::visit::{self, Visit};

use super::Finding;

const TABLE: &str = "docs/requirements.md";

/// Families of numbered requirements that must be there without a gap.
const NUMBERED: [(&str, u32); 2] = [("MUST-", 69), ("SHLD-", 31)];

/// How a row stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Standing {
    Obeyed,
    Differs,
    Moot,
    Open,
}

impl Standing {
    fn of(cell: &str) -> Self {
        let begins = |word: &str| cell.starts_with(word);
        match () {
            () if begins("open:") => Self::Open,
            () if begins("differs:") => Self::Differs,
            () if begins("moot:") => Self::Moot,
            () => Self::Obeyed,
        }
    }
}

/// One requirement.
#[derive(Debug)]
struct Row<'a> {
    line: usize,
    id: &'a str,
    standing: Standing,
    obeyed_by: &'a str,
    shown_by: &'a str,
}

/// Checks the table and the figures that other pages take from it.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let text = fs::read_to_string(root.join(TABLE)).context(TABLE)?;
    let rows = rows(&text);
    let mut places = Places { root, items: BTreeMap::new() };
    let mut findings = Vec::new();
    for row in &rows {
        findings.extend(row_faults(row, &mut places).into_iter().map(|fault| at(row.line, &fault)));
    }
    findings.extend(numbering_faults(&rows).into_iter().map(|fault| at(1, &fault)));
    for page in ["README.md", "SPECIFICATION.md"] {
        let text = fs::read_to_string(root.join(page)).context(page)?;
        findings.extend(
            miscounted(&text, &rows)
                .into_iter()
                .map(|(line, fault)| Finding::new(Path::new(page), line, fault)),
        );
    }
    Ok(findings)
}

/// How many requirements of each family stand how, for a person.
pub(crate) fn summary(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join(TABLE)).context(TABLE)?;
    let rows = rows(&text);
    let families: BTreeSet<&str> = rows.iter().map(|row| family(row.id)).collect();
    let line = |name: &str| {
        let count = |standing| of_family(&rows, name).filter(|row| row.standing == standing).count();
        let [obeyed, differs, moot, open] =
            [Standing::Obeyed, Standing::Differs, Standing::Moot, Standing::Open].map(count);
        let all = of_family(&rows, name).count();
        format!("{name:<9} {obeyed:>3} of {all:<3} obeyed, {differs} differ, {moot} moot, {open} open")
    };
    Ok(families.into_iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn at(line: usize, text: &str) -> Finding {
    Finding::new(Path::new(TABLE), line, text)
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let numbered = text.lines().enumerate();
    numbered.filter_map(|(n, line)| Row::parse(n + 1, line)).collect()
}

impl<'a> Row<'a> {
    /// A line of a table whose first cell is an id, such as `MUST-1`.
    fn parse(line: usize, text: &'a str) -> Option<Self> {
        let inner = text.strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        let [id, _, obeyed_by, shown_by] = cells[..] else { return None };
        let is_id = id.contains('-') && id.ends_with(|c: char| c.is_ascii_alphanumeric());
        let standing = Standing::of(obeyed_by);
        is_id.then_some(Self { line, id, standing, obeyed_by, shown_by })
    }
}

/// The words before an id's last number: `MUST` of `MUST-1`.
fn family(id: &str) -> &str {
    id.rsplit_once('-').map_or(id, |(family, _)| family)
}

fn of_family<'r>(rows: &'r [Row<'r>], name: &'r str) -> impl Iterator<Item = &'r Row<'r>> {
    rows.iter().filter(move |row| family(row.id) == name)
}

fn row_faults(row: &Row<'_>, places: &mut Places<'_>) -> Vec<String> {
    let (obeyed, shown) = (quoted(row.obeyed_by), quoted(row.shown_by));
    let mut faults = Vec::new();
    let says_why = row.obeyed_by.split_once(':').is_some_and(|(_, why)| !why.trim().is_empty());
    match row.standing {
        Standing::Obeyed if obeyed.is_empty() => faults.push(format!("{}: no place obeys it", row.id)),
        Standing::Obeyed if shown.is_empty() => faults.push(format!("{}: nothing shows it", row.id)),
        Standing::Obeyed => {}
        _ if !says_why => faults.push(format!("{}: it does not say why", row.id)),
        _ => {}
    }
    faults.extend(obeyed.iter().filter_map(|place| places.fault(place, false)));
    faults.extend(shown.iter().filter_map(|place| places.fault(place, true)));
    faults
}

/// Ids that appear twice, and numbers that are missing.
fn numbering_faults(rows: &[Row<'_>]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut faults: Vec<String> = rows
        .iter()
        .filter(|row| !seen.insert(row.id))
        .map(|row| format!("{} stands twice", row.id))
        .collect();
    for (prefix, last) in NUMBERED {
        let missing = (1..=last).map(|n| format!("{prefix}{n}")).filter(|id| !seen.contains(id.as_str()));
        faults.extend(missing.map(|id| format!("{id} is missing")));
    }
    faults
}

/// Figures of the form `x of 69 MUST` that are not what the table has.
fn miscounted(text: &str, rows: &[Row<'_>]) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut told = BTreeSet::new();
    for (n, line) in text.lines().enumerate() {
        for (prefix, last) in NUMBERED {
            let name = prefix.trim_end_matches('-');
            let phrase = format!(" of {last} {name}");
            let Some((before, _)) = line.split_once(&phrase) else { continue };
            told.insert(name);
            let figure = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            let counted = of_family(rows, name).filter(|row| row.standing == Standing::Obeyed).count();
            if figure != counted.to_string() {
                faults.push((n + 1, format!("`{figure}{phrase}`, but {TABLE} has {counted}")));
            }
        }
    }
    let silent =
        NUMBERED.iter().map(|(prefix, _)| prefix.trim_end_matches('-')).filter(|name| !told.contains(name));
    faults.extend(silent.map(|name| (1, format!("it does not say how many {name} of RFC 9293 are obeyed"))));
    faults
}

/// What stands between backquotes and looks like a place.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).filter(|text| text.contains('/') && text.contains('.')).collect()
}

/// Files and their items, read once.
struct Places<'a> {
    root: &'a Path,
    items: BTreeMap<String, Option<Items>>,
}

#[derive(Default)]
struct Items {
    all: BTreeSet<String>,
    tests: BTreeSet<String>,
}

impl Places<'_> {
    /// What is wrong with a place.
    fn fault(&mut self, place: &str, must_be_test: bool) -> Option<String> {
        let (file, item) = match place.split_once("::") {
            Some((file, item)) => (file, Some(item)),
            None => (place, None),
        };
        if !self.root.join(file).exists() {
            return Some(format!("`{file}` does not exist"));
        }
        let Some(item) = item else {
            let is_vague = must_be_test && file.ends_with(".rs");
            return is_vague.then(|| format!("`{file}` is no test: which of its tests?"));
        };
        let root = self.root;
        let read = || Items::read(&fs::read_to_string(root.join(file)).ok()?);
        let Some(items) = self.items.entry(file.to_owned()).or_insert_with(read) else {
            return Some(format!("`{file}` is no Rust file"));
        };
        let last = item.rsplit("::").next().unwrap_or(item);
        match (must_be_test, items.all.contains(last), items.tests.contains(last)) {
            (true, _, false) => Some(format!("`{file}` has no test `{last}`")),
            (false, false, false) => Some(format!("`{file}` has no item `{last}`")),
            _ => None,
        }
    }
}

impl Items {
    fn read(text: &str) -> Option<Self> {
        let mut items = Self { tests: tests(text), ..Self::default() };
        items.visit_file(&syn::parse_file(text).ok()?);
        Some(items)
    }

    fn note(&mut self, ident: &syn::Ident) {
        self.all.insert(ident.to_string());
    }
}

/// The functions that `#[test]` marks, also those inside of a macro.
fn tests(text: &str) -> BTreeSet<String> {
    let mut is_marked = false;
    let mut tests = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_marked = true;
        } else if let Some(rest) = line.strip_prefix("fn ") {
            let name = rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
            if std::mem::take(&mut is_marked) {
                tests.insert(name.to_owned());
            }
        }
    }
    tests
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig.ident);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.note(&item.ident);
        item.fields.iter().filter_map(|field| field.ident.as_ref()).for_each(|ident| self.note(ident));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.note(&item.ident);
        item.variants.iter().for_each(|variant| self.note(&variant.ident));
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.note(&item.ident);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.note(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.note(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.note(&item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "| id | requirement | obeyed by | shown by |\n|---|---|---|---|\n\
        | MUST-1 | a | `xtask/src/main.rs::report` | `xtask/src/tidy/words.rs::a_word_that_is_gone` |\n\
        | MUST-2 | b | `xtask/src/main.rs::gone` | `gone.pkt/x.pkt` |\n\
        | MUST-2 | b | open: nobody wrote it | |\n\
        | SHLD-1 | c | differs: | |\n\
        | SHLD-2 | d | `Cargo.toml` by hand | |\n";

    fn faults_of(id: &str) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut places = Places { root, items: BTreeMap::new() };
        rows(TEXT).iter().filter(|row| row.id == id).flat_map(|row| row_faults(row, &mut places)).collect()
    }

    #[test]
    fn what_dangles_is_found() {
        assert_eq!(faults_of("MUST-1"), ["`xtask/src/tidy/words.rs` has no test `a_word_that_is_gone`"]);
        let second = faults_of("MUST-2");
        assert_eq!(second, ["`xtask/src/main.rs` has no item `gone`", "`gone.pkt/x.pkt` does not exist"]);
        assert_eq!(faults_of("SHLD-1"), ["SHLD-1: it does not say why"]);
        assert_eq!(faults_of("SHLD-2"), ["SHLD-2: no place obeys it", "SHLD-2: nothing shows it"][..1]);
    }

    #[test]
    fn gaps_and_repetitions_are_found() {
        let faults = numbering_faults(&rows(TEXT));
        assert_eq!(faults.len(), 1 + 67 + 29);
        assert_eq!(faults[..2], ["MUST-2 stands twice", "MUST-3 is missing"]);
    }

    #[test]
    fn figures_elsewhere_are_compared() {
        let rows = rows(TEXT);
        assert_eq!(miscounted("obeys 2 of 69 MUST and 1 of 31 SHLD", &rows), []);
        assert_eq!(miscounted("obeys 3 of 69 MUST and 1 of 31 SHLD", &rows).len(), 1);
        assert_eq!(miscounted("obeys most", &rows).len(), 2);
    }

    #[test]
    fn tests_inside_of_macros_count() {
        let text = "proptest! {\n    #[test]\n    fn a_law(n in 0..5) {}\n}\nfn helper() {}\n#[test]\n#[ignore]\nfn b() {}";
        assert_eq!(tests(text).into_iter().collect::<Vec<_>>(), ["a_law", "b"]);
    }
}
