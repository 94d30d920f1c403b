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
use elf::segment::ProgramHeader;
use elf::{ElfStream, ParseError};

use super::bare_calls;

/// What an ELF file begins with.
pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// As much of its code, and of its names, is looked through: that takes some milliseconds.
const LOOKED_MAX: u64 = 64 << 20;
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
    let whole = file.try_clone()?;
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
    let is_code = |it: &&ProgramHeader| it.p_type == abi::PT_LOAD && it.p_flags & abi::PF_X != 0;
    let code: Vec<_> = segments.iter().filter(is_code).map(|it| (it.p_offset, it.p_filesz)).collect();
    let headers = stream.section_headers();
    let tables = headers.iter().filter(|it| it.sh_type == abi::SHT_SYMTAB);
    let names = tables.filter_map(|it| headers.get(it.sh_link as usize)).map(|it| (it.sh_offset, it.sh_size));
    if let Some(call) = bare_call(&whole, &code, names)? {
        return Ok(Elf::Bare(call));
    }
    Ok(Elf::Dynamic(loader))
}

/// The first system call of sockets that the code makes which lies there, by itself or by the names of the program's functions.
fn bare_call(
    file: &File,
    code: &[(u64, u64)],
    mut names: impl Iterator<Item = (u64, u64)>,
) -> io::Result<Option<&'static str>> {
    let mut has_unknown = false;
    for &place in code {
        let found = find(file, place, bare_calls::LONGEST, |piece| {
            has_unknown |= bare_calls::has_unknown(piece);
            bare_calls::first(piece)
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    if !has_unknown {
        return Ok(None);
    }
    let named =
        names.find_map(|place| find(file, place, bare_calls::SYMBOL_LONGEST, bare_calls::named).transpose());
    named.transpose()
}

/// The first that `look` finds in so many bytes, of which it sees a piece at a time, with what is shorter than `longest` in one of them; a
/// file that ends before is the kernel's to refuse.
fn find<T>(
    file: &File,
    (begin, len): (u64, u64),
    longest: usize,
    mut look: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let end = begin.saturating_add(len.min(LOOKED_MAX));
    let mut bytes = vec![0; CHUNK];
    let mut at = begin;
    while at < end {
        let room = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let read = file.read_at(&mut bytes[..room], at)?;
        if let Some(found) = look(&bytes[..read]) {
            return Ok(Some(found));
        }
        if read <= longest {
            break;
        }
        // One may lie across the end of a piece.
        at += (read - longest) as u64;
    }
    Ok(None)
}
