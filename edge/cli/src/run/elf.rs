//! What an ELF file says about preloading: for which machine, with which loader, made by which compiler.
//!
//! Called by `program.rs`. The file is somebody's: the crate `elf` checks every offset, and what is read of it is
//! bounded here.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use elf::abi;
use elf::endian::AnyEndian;
use elf::note::Note;
use elf::{ElfStream, ParseError};

/// What an ELF file begins with.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// The longest path that Linux takes, and more than any note that a linker writes.
const PIECE_MAX: u64 = 4096;
/// The machine that this command and the library are made for.
pub(super) const MACHINE: u16 = if cfg!(target_arch = "aarch64") { abi::EM_AARCH64 } else { abi::EM_X86_64 };
/// `NT_GO_BUILD_ID`: the note that Go's linker puts into every program (`cmd/internal/buildid`).
const GO_BUILD_ID: u64 = 4;

/// What matters of an ELF file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Elf {
    /// For another machine, or of another word size.
    Foreign(String),
    /// No loader: nothing can be put in front of its functions.
    Static,
    /// Made by Go, which makes system calls by itself.
    Go,
    /// Loaded by the program of this path.
    Dynamic(PathBuf),
}

/// Reads the headers of `file`, which begins with `head`.
pub(super) fn read(file: File, head: &[u8]) -> Result<Elf, ParseError> {
    if head.get(abi::EI_CLASS) == Some(&abi::ELFCLASS32) {
        return Ok(Elf::Foreign("a 32-bit program".to_owned()));
    }
    let mut stream = ElfStream::<AnyEndian, _>::open_stream(file)?;
    if stream.ehdr.e_machine != MACHINE {
        let number = stream.ehdr.e_machine;
        return Ok(Elf::Foreign(format!("made for another machine (ELF machine {number})")));
    }
    let segments = stream.segments().clone();
    let pieces = |kind| segments.iter().filter(move |it| it.p_type == kind && it.p_filesz <= PIECE_MAX);
    for segment in pieces(abi::PT_NOTE) {
        let is_go = |note| matches!(note, Note::Unknown(it) if it.n_type == GO_BUILD_ID && it.name_str().is_ok_and(|name| name == "Go"));
        if stream.segment_data_as_notes(segment)?.any(is_go) {
            return Ok(Elf::Go);
        }
    }
    let Some(interpreter) = pieces(abi::PT_INTERP).next() else { return Ok(Elf::Static) };
    let path = stream.segment_data(interpreter)?;
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(Elf::Dynamic(OsString::from_vec(path.to_vec()).into()))
}
