//! The corpus in the tree: one folder per target, one small file per input.
//!
//! Files that begin with `seed-` are written by `seeds.rs`; the others are inputs that once failed, named for
//! what they showed, and stay for ever.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Target;

/// The folder of `target`.
pub fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Every input of `target` with its file's name, in the order of the names.
pub fn load(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder(target))? {
        let entry = entry?;
        inputs.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}
