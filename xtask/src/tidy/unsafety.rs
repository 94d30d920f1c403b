//! Unsafe code lives in a few named leaf files, and every use says why it is sound.
//!
//! The list below is the whole of it. A crate without a listed file forbids unsafe code in its root.

use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::Source;

/// Where unsafe code may live: a file, or every file of a folder of drivers.
const PERMITTED: &[&str] = &[
    "base/frame/src/pool.rs",
    "base/frame/src/ring.rs",
    "base/frame/src/parcel.rs",
    "base/frame/src/mpsc.rs",
    "base/frame/src/byte_ring.rs",
    "base/frame/src/byte_ring/grow.rs",
    "base/frame/src/byte_ring/home.rs",
    "base/frame/src/ahead.rs",
    "base/frame/src/alike.rs",
    "base/frame/src/arena.rs",
    "base/frame/src/extents.rs",
    "base/frame/src/large_pages.rs",
    "base/frame/src/zeroed.rs",
    "path/lane/src/perimeter.rs",
    "path/lane/src/probes.rs",
    "drivers/tap/src/sys.rs",
    "drivers/packet/src/sys.rs",
    "drivers/memif/src/sys.rs",
    "drivers/afxdp/src/sys.rs",
    "drivers/shm/src/sys.rs",
    "control/engine/src/sys.rs",
    "edge/shim/src/address.rs",
    "edge/shim/src/answer.rs",
    "edge/shim/src/buffers.rs",
    "edge/shim/src/environment.rs",
    "edge/shim/src/handlers.rs",
    "edge/shim/src/hooks/confining.rs",
    "edge/shim/src/hooks/control.rs",
    "edge/shim/src/hooks/descriptors.rs",
    "edge/shim/src/hooks/handlers.rs",
    "edge/shim/src/hooks/libraries.rs",
    "edge/shim/src/hooks/messages.rs",
    "edge/shim/src/hooks/names.rs",
    "edge/shim/src/hooks/readiness.rs",
    "edge/shim/src/hooks/sockets.rs",
    "edge/shim/src/hooks/spawning.rs",
    "edge/shim/src/hooks/stdio.rs",
    "edge/shim/src/hooks/syscall.rs",
    "edge/shim/src/hooks/transfer.rs",
    "edge/shim/src/lib.rs",
    "edge/shim/src/lock.rs",
    "edge/shim/src/memory.rs",
    "edge/shim/src/process.rs",
    "edge/shim/src/real.rs",
    "edge/shim/src/stdio.rs",
    "edge/shim/src/sys.rs",
    "proof/packetdrill/src/abi.rs",
    "proof/packetdrill/src/host.rs",
    "proof/packetdrill/src/memory.rs",
];

/// Checks where unsafe code is and that each block is argued.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut finder = Finder { source, findings: Vec::new() };
    finder.visit_file(&source.tree);
    finder.findings.extend(check_root(source));
    finder.findings
}

/// A crate root forbids unsafe code unless one of its files is listed.
fn check_root(source: &Source) -> Option<Finding> {
    let name = source.path.file_name()?;
    let folder = source.path.parent()?;
    let is_root = (name == "lib.rs" || name == "main.rs") && folder.ends_with("src");
    let has_permitted = PERMITTED.iter().any(|p| Path::new(p).starts_with(folder));
    let forbids = source.lines.iter().any(|l| l.trim() == "#![forbid(unsafe_code)]");
    (is_root && !has_permitted && !forbids && !source.is_below("xtask") && !source.is_below("proof"))
        .then(|| Finding::new(&source.path, 1, "a crate without unsafe files says #![forbid(unsafe_code)]"))
}

struct Finder<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Finder<'_> {
    fn unsafe_at(&mut self, line: usize, must_be_argued: bool) {
        if self.source.is_test(line) || self.source.is_below("proof") {
            return;
        }
        if !PERMITTED.iter().any(|p| self.source.path == Path::new(p)) {
            let text = "unsafe code outside the files listed in xtask/src/tidy/unsafety.rs";
            self.findings.push(Finding::new(&self.source.path, line, text));
        } else if must_be_argued && !self.is_argued(line) {
            let text = "an unsafe block needs a `// SAFETY:` comment above it";
            self.findings.push(Finding::new(&self.source.path, line, text));
        }
    }

    /// Looks upwards from `line` through the statement and its comment for the word.
    fn is_argued(&self, line: usize) -> bool {
        let above = self.source.lines[..line].iter().rev().take(12);
        above.take_while(|l| !l.trim().is_empty()).any(|l| l.contains("SAFETY:"))
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_unsafe(&mut self, expr: &'ast syn::ExprUnsafe) {
        self.unsafe_at(expr.span().start().line, true);
        visit::visit_expr_unsafe(self, expr);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(word) = item.unsafety {
            self.unsafe_at(word.span().start().line, true);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let Some(word) = signature.unsafety {
            self.unsafe_at(word.span().start().line, false);
        }
        visit::visit_signature(self, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&Source::parse(Path::new(path), text).unwrap()).len()
    }

    #[test]
    fn unsafe_outside_the_list_is_found() {
        assert_eq!(findings("path/tcp/src/x.rs", "//! X.\nfn f() { unsafe { g() } }\n"), 1);
    }

    #[test]
    fn a_listed_file_must_argue() {
        let path = "base/frame/src/pool.rs";
        assert_eq!(findings(path, "//! X.\nfn f() { unsafe { g() } }\n"), 1);
        assert_eq!(
            findings(path, "//! X.\nfn f() {\n    // SAFETY: g has no rules.\n    unsafe { g() }\n}\n"),
            0
        );
    }

    #[test]
    fn a_root_forbids() {
        assert_eq!(findings("path/tcp/src/lib.rs", "//! X.\n"), 1);
        assert_eq!(findings("path/tcp/src/lib.rs", "//! X.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(findings("path/lane/src/lib.rs", "//! X.\n"), 0);
    }
}
