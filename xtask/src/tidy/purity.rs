//! The floors `base` and `path` read no clock, start no thread, open no socket, take no lock, draw no
//! random number and print nothing; and no code outside tests calls `unwrap`.

use syn::visit::{self, Visit};

use super::Finding;
use super::source::Source;

/// Paths whose last two segments betray I/O or a clock.
const BANNED_PATHS: &[(&str, &str)] = &[
    ("Instant", "now"),
    ("SystemTime", "now"),
    ("thread", "spawn"),
    ("thread", "sleep"),
    ("thread", "park"),
    ("net", "TcpStream"),
    ("net", "TcpListener"),
    ("net", "UdpSocket"),
    ("fs", "File"),
    ("getrandom", "fill"),
];

const BANNED_TYPES: &[&str] = &["Mutex", "RwLock", "Condvar"];
const BANNED_MACROS: &[&str] = &["println", "eprintln", "print", "eprint", "dbg"];

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let pure = source.is_below("base") || source.is_below("path");
    let checks_unwrap = !source.is_below("proof") && !source.is_below("examples") && !is_example(source);
    let mut finder =
        Finder { source, pure: pure && !is_example(source), checks_unwrap, findings: Vec::new() };
    finder.visit_file(&source.tree);
    finder.findings
}

fn is_example(source: &Source) -> bool {
    source.path.components().any(|c| c.as_os_str() == "examples")
}

struct Finder<'a> {
    source: &'a Source,
    pure: bool,
    checks_unwrap: bool,
    findings: Vec<Finding>,
}

impl Finder<'_> {
    fn found(&mut self, span: proc_macro2::Span, text: String) {
        let line = span.start().line;
        if !self.source.is_test(line) {
            self.findings.push(Finding::new(&self.source.path, line, text));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if self.pure {
            if let [.., a, b] = names.as_slice()
                && BANNED_PATHS.contains(&(a.as_str(), b.as_str()))
            {
                self.found(path.segments[0].ident.span(), format!("{a}::{b} has no place in base or path"));
            }
            if let Some(name) = names.iter().find(|n| BANNED_TYPES.contains(&n.as_str())) {
                self.found(path.segments[0].ident.span(), format!("{name} has no place in base or path"));
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let name = item.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        if self.pure && BANNED_MACROS.contains(&name.as_str()) {
            let span = item.path.segments[0].ident.span();
            self.found(span, format!("{name}! has no place in base or path"));
        }
        visit::visit_macro(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.checks_unwrap && call.method == "unwrap" {
            self.found(call.method.span(), "unwrap outside tests; `expect` states the invariant".into());
        }
        visit::visit_expr_method_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn findings(path: &str, body: &str) -> usize {
        let text = format!("//! X.\nfn f() {{ {body} }}\n");
        check(&Source::parse(Path::new(path), &text).unwrap()).len()
    }

    #[test]
    fn impurities_are_found_below_path_alone() {
        for body in
            ["std::time::Instant::now();", "std::thread::spawn(g);", "let _: Mutex<u8>;", "println!();"]
        {
            assert_eq!(findings("path/tcp/src/x.rs", body), 1, "{body}");
            assert_eq!(findings("control/engine/src/x.rs", body), 0, "{body}");
        }
    }

    #[test]
    fn unwrap_is_found_outside_tests() {
        assert_eq!(findings("control/plan/src/x.rs", "g().unwrap();"), 1);
        assert_eq!(findings("control/plan/tests/x.rs", "g().unwrap();"), 0);
    }
}
