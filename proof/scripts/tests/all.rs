//! Every script of the tree, over both families. `FIRELANE_SCRIPT=part/of/a/path` runs those whose path has it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use firelane_scripts::{Family, Script, run};

fn collect(folder: &Path, scripts: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, scripts);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            scripts.push(path);
        }
    }
}

/// What is wrong with one script, a line per failure.
fn check(name: &str, text: &str) -> Vec<String> {
    let script = match Script::parse(text) {
        Ok(script) => script,
        Err(error) => return vec![format!("{name}:{error}")],
    };
    let failed = |family| match catch_unwind(AssertUnwindSafe(|| run(&script, family))) {
        Ok(outcome) => outcome.err().map(|failure| format!("{name}:{failure} ({family:?})")),
        Err(_) => Some(format!("{name}: panics ({family:?})")),
    };
    Family::ALL.into_iter().filter_map(failed).collect()
}

#[test]
fn every_script_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut scripts = Vec::new();
    collect(root, &mut scripts);
    scripts.sort();
    let part = std::env::var("FIRELANE_SCRIPT").unwrap_or_default();
    let mut failures = Vec::new();
    let mut count = 0;
    for path in scripts.iter().filter(|path| path.to_string_lossy().contains(&part)) {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let text = fs::read_to_string(path).expect("a script is text");
        failures.extend(check(&name, &text));
        count += 1;
    }
    assert!(count > 0, "no script has {part:?} in its path");
    assert!(failures.is_empty(), "{} of {count} scripts fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_failure_names_file_line_and_both_sides() {
    let text = "+0 l = listen(80)\n+0 < S 0:0(0) win 1000 <mss 1000>\n+0 > S. 0:0(0) ack 2 <...>\n";
    let failures = check("a.pkt", text);
    assert_eq!(failures.len(), 2);
    assert!(failures[0].starts_with("a.pkt:3: expected `S. 0:0(0) ack 2 <...>`, got `S. 0:0(0) ack 1 win"));
    for (text, what) in [
        ("+0 l = listen(80)\n+0 < S 0:0(0) win 1000 <mss 1000>\n+1 quiet", "3: expected nothing, got `S."),
        ("+0 l = listen(80)\n+1 > S. 0:0(0) ack 1", "2: expected `S. 0:0(0) ack 1`, got nothing until 1.00"),
        ("+0 l = listen(80)\n+0 c = accept(l)", "2: expected accept() = ok, got again"),
        ("+0 l = listen(80)\n+0 read(l, 5)", "2: `l` is no connection"),
        ("+0 < S 0:0(0)\n+0 > R. 0:0(0) ack 1\n+0 < S 0:0(0)", "3: expected the end, got `R."),
    ] {
        let failures = check("a.pkt", text);
        assert!(failures[0].contains(what), "{text}: {failures:?}");
    }
}
