//! `cargo xtask man FOLDER`: the pages of `docs/man` as man(1) reads them, in `FOLDER/man5` and `FOLDER/man8`.
//!
//! The Markdown is what these pages are written in and no more: headings, paragraphs, lists, tables, fenced examples. A page that is
//! about several commands (`# a(8) and b(8): ...`) has each of their names.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes all of them.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let from = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/man"));
    for entry in fs::read_dir(&from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        for (name, page) in pages(&text).with_context(|| path.display().to_string())? {
            let section = name.rsplit('.').next().unwrap_or_default();
            let place = folder.join(format!("man{section}"));
            fs::create_dir_all(&place)?;
            fs::write(place.join(&name), page)?;
        }
    }
    Ok(())
}

/// The files of a page: its own, and one for each other name that leads there.
fn pages(text: &str) -> Result<Vec<(String, String)>> {
    let (title, body) = text.split_once('\n').context("a page begins with a title")?;
    let (names, about) = title.split_once(": ").unwrap_or((title, ""));
    let names: Vec<(&str, &str)> = names
        .trim_start_matches("# ")
        .split([',', ' '])
        .filter_map(|it| it.strip_suffix(')')?.split_once('('))
        .collect();
    let (first, section) = *names.first().context("a title has a name with its section, such as dladm(8)")?;
    let mut page = format!(".TH {} {section} \"\" Firelane\n", first.to_uppercase());
    if !body.contains("\n## NAME") {
        let all = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let about = if about.is_empty() { "of Firelane" } else { about };
        let _ = writeln!(page, ".SH NAME\n{} \\- {}", escape(&all), inline(about));
    }
    page.push_str(&roff(body));
    let own = format!("{first}.{section}");
    let others = names[1..]
        .iter()
        .map(|(name, section)| (format!("{name}.{section}"), format!(".so man{section}/{own}\n")));
    let mut files: Vec<_> = others.collect();
    files.push((own, page));
    Ok(files)
}

fn roff(body: &str) -> String {
    let mut page = String::new();
    let mut lines = body.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            page.push_str(".PP\n.nf\n.RS 2\n");
            for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                page.push_str(&literal(line));
            }
            page.push_str(".RE\n.fi\n");
        } else if let Some(heading) = line.strip_prefix("## ") {
            let _ = writeln!(page, ".SH {}", inline(heading).to_uppercase());
        } else if let Some(heading) = line.strip_prefix("### ") {
            let _ = writeln!(page, ".SS {}", inline(heading));
        } else if let Some(item) = line.strip_prefix("- ") {
            let _ = writeln!(page, ".IP \\(bu 2\n{}", guarded(&inline(item)));
        } else if line.starts_with('|') {
            // A table is a list of its first cells, each with what the row says of it. The head and its rule say nothing.
            if !lines.peek().is_some_and(|next| next.starts_with("|-")) && !line.starts_with("|-") {
                page.push_str(&row(line));
            }
        } else if line.is_empty() {
            page.push_str(".PP\n");
        } else {
            page.push_str(&guarded(&inline(line.trim_start())));
            page.push('\n');
        }
    }
    page
}

/// A row of a table.
fn row(line: &str) -> String {
    let cells = line.trim().trim_matches('|').replace("\\|", "\u{1}");
    let cells: Vec<String> =
        cells.split('|').map(|cell| inline(&cell.trim().replace('\u{1}', "|"))).collect();
    let (first, rest) = cells.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let rest: Vec<&str> = rest.iter().map(String::as_str).filter(|cell| !cell.is_empty()).collect();
    format!(".TP\n{}\n{}\n", guarded(first), guarded(&rest.join("; ")))
}

/// A line of an example.
fn literal(line: &str) -> String {
    guarded(&escape(line)) + "\n"
}

/// Text with its bold and literal words, and without the addresses of its links.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['*', '`', '[']) {
        let (before, from) = rest.split_at(at);
        out.push_str(&escape(before));
        let marked = [("**", "**"), ("`", "`")].into_iter().find_map(|(begin, end)| {
            let inner = from.strip_prefix(begin)?;
            let (inner, after) = inner.split_once(end)?;
            (!inner.is_empty()).then(|| (format!("\\fB{}\\fR", escape(inner)), after))
        });
        let linked = || {
            let (name, after) = from.strip_prefix('[')?.split_once("](")?;
            Some((inline(name), after.split_once(')')?.1))
        };
        match marked.or_else(linked) {
            Some((shown, after)) => {
                out.push_str(&shown);
                rest = after;
            }
            None => {
                out.push_str(&escape(&from[..1]));
                rest = &from[1..];
            }
        }
    }
    out + &escape(rest)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A line that begins like a request is none.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_file_for_each_of_its_names() {
        let files = pages("# a(8) and b(8): this and that\n\nText.\n").unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b.8", "a.8"]);
        assert_eq!(files[0].1, ".so man8/a.8\n");
        assert!(files[1].1.starts_with(".TH A 8 \"\" Firelane\n.SH NAME\na, b \\- this and that\n"));
    }

    #[test]
    fn markdown_becomes_what_man_shows() {
        let text = "A `-x` of **all** [dladm(8)](dladm.8.md).\n\n## Exit codes\n\n| code | meaning |\n|---|---|\n| `0` | done |\n\
                    - one\n```text\n.dot\\n\n```\n'tis";
        let want = "A \\fB\\-x\\fR of \\fBall\\fR dladm(8).\n.PP\n.SH EXIT CODES\n.PP\n.TP\n\\fB0\\fR\ndone\n\
                    .IP \\(bu 2\none\n.PP\n.nf\n.RS 2\n\\&.dot\\en\n.RE\n.fi\n\\&'tis\n";
        assert_eq!(roff(text), want);
    }

    #[test]
    fn every_command_has_a_page_that_man_can_show() {
        let folder = std::env::temp_dir().join(format!("firelane-man-{}", std::process::id()));
        run(&folder).unwrap();
        let commands = "acctadm connstat dladm dlstat firelane firelaned flowadm flowstat ipadm ipf ipfstat ipnat ippool netstat route";
        for name in commands.split(' ') {
            let path = folder.join(format!("man8/{name}.8"));
            assert!(path.exists(), "{name} has no page");
            // Where there is no groff, nobody judges.
            let judged = std::process::Command::new("groff")
                .args(["-man", "-Tutf8", "-ww", "-P-c"])
                .arg(&path)
                .current_dir(&folder)
                .output();
            if let Ok(judged) = judged {
                let faults = String::from_utf8_lossy(&judged.stderr).into_owned();
                let faults: Vec<_> = faults.lines().filter(|it| !it.contains("cannot")).collect();
                assert!(judged.status.success() && faults.is_empty(), "{name}: {faults:?}");
            }
        }
        assert!(folder.join("man5/firelane.toml.5").exists());
        let _ = fs::remove_dir_all(&folder);
    }
}
