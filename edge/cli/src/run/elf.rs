//! What an ELF file says about preloading: for which machine, with which loader, made by which compiler.
//!
//! Called by `program.rs`. The file is somebody's: the crate `elf` checks every offset, and what is read of it is
//! bounded here.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use elf::abi;
use elf::endian::AnyEndian;
use elf::note::Note;
use elf::{ElfStream, ParseError};

use super::bare_calls;

/// What an ELF file begins with.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// As much of its code is looked through: that takes some milliseconds.
const CODE_MAX: u64 = 64 << 20;
/// How much of that at a time.
const CHUNK: usize = 1 << 20;
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
    /// Its own code makes this system call, of sockets or of who waits for them, past the C library.
    Bare(&'static str),
    /// Loaded by the program of this path.
    Dynamic(PathBuf),
}

/// Reads the headers of `file`, which begins with `head`.
pub(super) fn read(file: File, head: &[u8]) -> Result<Elf, ParseError> {
    let code = file.try_clone()?;
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
    let loader = OsString::from_vec(path.to_vec()).into();
    for segment in segments.iter().filter(|it| it.p_type == abi::PT_LOAD && it.p_flags & abi::PF_X != 0) {
        if let Some(name) = bare_call(&code, segment.p_offset, segment.p_filesz)? {
            return Ok(Elf::Bare(name));
        }
    }
    Ok(Elf::Dynamic(loader))
}

/// The first system call of sockets in so much code; a file that ends before is the kernel's to refuse.
fn bare_call(file: &File, begin: u64, len: u64) -> io::Result<Option<&'static str>> {
    let end = begin.saturating_add(len.min(CODE_MAX));
    let mut bytes = vec![0; CHUNK];
    let mut at = begin;
    while at < end {
        let room = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let read = file.read_at(&mut bytes[..room], at)?;
        if let Some(name) = bare_calls::first(&bytes[..read]) {
            return Ok(Some(name));
        }
        if read <= bare_calls::LONGEST {
            break;
        }
        // One may lie across the end of a piece.
        at += (read - bare_calls::LONGEST) as u64;
    }
    Ok(None)
}
