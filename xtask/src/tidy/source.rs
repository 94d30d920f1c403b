//! A Rust file as the rules see it: its lines, its syntax tree, and which lines are test code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One parsed file.
pub(crate) struct Source {
    /// Relative to the repository's root.
    pub(crate) path: PathBuf,
    /// The text, line by line.
    pub(crate) lines: Vec<String>,
    /// The syntax tree.
    pub(crate) tree: syn::File,
    test_lines: Vec<bool>,
}

impl Source {
    /// Reads and parses `path`.
    pub(crate) fn read(root: &Path, path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(path.strip_prefix(root).unwrap_or(path), &text)
    }

    /// Parses `text` as the file `path`.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self> {
        let tree = syn::parse_file(text).with_context(|| path.display().to_string())?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let is_test_name =
            |name: &std::ffi::OsStr| name == "tests" || name == "tests.rs" || name == "benches";
        let whole_file_is_test = path.components().any(|c| is_test_name(c.as_os_str()));
        let mut finder = TestFinder { test_lines: vec![whole_file_is_test; lines.len() + 2] };
        finder.visit_file(&tree);
        Ok(Self { path: path.to_owned(), lines, tree, test_lines: finder.test_lines })
    }

    /// Whether line `number` (from one) belongs to tests.
    pub(crate) fn is_test(&self, number: usize) -> bool {
        self.test_lines.get(number).copied().unwrap_or(false)
    }

    /// Whether the file lies below `folder`.
    pub(crate) fn is_below(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }
}

/// Every Rust file that git would know, below the floors.
pub(crate) fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let floors = ["base", "drivers", "path", "control", "services", "edge", "proof", "xtask", "examples"];
    let mut files = Vec::new();
    for floor in floors {
        collect(&root.join(floor), &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|n| n != "target") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether an item is compiled for tests alone.
fn is_cfg_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| {
        a.path().is_ident("test")
            || (a.path().is_ident("cfg") && a.parse_args::<syn::Meta>().is_ok_and(|m| quote_has_test(&m)))
    })
}

fn quote_has_test(meta: &syn::Meta) -> bool {
    match meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => list.tokens.to_string().contains("test"),
        _ => false,
    }
}

struct TestFinder {
    test_lines: Vec<bool>,
}

impl TestFinder {
    fn mark(&mut self, span: proc_macro2::Span) {
        for line in span.start().line..=span.end().line {
            if let Some(mark) = self.test_lines.get_mut(line) {
                *mark = true;
            }
        }
    }
}

impl<'ast> Visit<'ast> for TestFinder {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_cfg_test(&item.attrs) {
            self.mark(item.span());
        } else {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_cfg_test(&item.attrs) {
            self.mark(item.span());
        }
    }
}
