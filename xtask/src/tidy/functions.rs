//! A function fits on a screen: at most 60 lines, from its signature to its closing brace.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::Source;

const FUNCTION_LINES_MAX: usize = 60;

/// Checks the length of every function outside tests.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut finder = Finder { source, findings: Vec::new() };
    finder.visit_file(&source.tree);
    finder.findings
}

struct Finder<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Finder<'_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.span().start().line, block.span().end().line);
        let lines = last - first + 1;
        if lines > FUNCTION_LINES_MAX && !self.source.is_test(first) {
            let text = format!("fn {} has {lines} lines; at most {FUNCTION_LINES_MAX}", signature.ident);
            self.findings.push(Finding::new(&self.source.path, first, text));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn sixty_lines_pass_and_sixty_one_do_not() {
        let function =
            |lines: usize| format!("//! Owns.\nfn f() {{\n{}}}\n", "let _ = 1;\n".repeat(lines - 2));
        let count = |lines| check(&Source::parse(Path::new("a.rs"), &function(lines)).unwrap()).len();
        assert_eq!((count(60), count(61)), (0, 1));
    }
}
