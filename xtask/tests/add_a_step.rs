//! `docs/add-a-step.md` adds a step: its patch is applied to a copy of the tree, built and tested, and is short.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A step of an example's size is so many lines at the most, its test among them.
const LINES_MAX: usize = 80;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The patch of the page.
fn patch() -> String {
    let page = std::fs::read_to_string(root().join("docs/add-a-step.md")).unwrap();
    let (_, rest) = page.split_once("```diff\n").expect("the page has a patch");
    rest.split_once("```").expect("the patch ends").0.to_owned()
}

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Copies what belongs to the repository: what editors and builds make beside it comes and goes meanwhile.
fn copy(tree: &Path) {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = succeeds(Command::new("git").args(list).current_dir(root()));
    let mut command = Command::new("cp");
    command.args(["-a", "--parents", "-t"]).arg(tree).current_dir(root());
    // One that was deleted is listed until that is committed.
    command.args(names.split_terminator('\0').filter(|it| root().join(it).exists()));
    succeeds(&mut command);
}

#[test]
fn a_step_is_a_short_patch_that_builds_and_works() {
    let patch = patch();
    let added = patch.lines().filter(|line| line.starts_with('+') && !line.starts_with("+++")).count();
    assert!(added < LINES_MAX, "{added} lines");

    // Cargo knows what it has built by the folder's name, so that it is always the same, and one test's at a time.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let taken = std::fs::File::create(folder.join("add-a-step.lock")).unwrap();
    taken.lock().unwrap();
    let tree = folder.join("add-a-step");
    let _ = std::fs::remove_dir_all(&tree);
    std::fs::create_dir_all(&tree).unwrap();
    copy(&tree);
    std::fs::write(tree.join("step.patch"), &patch).unwrap();
    // A copy inside a repository is no repository.
    let ceiling = tree.parent().unwrap();
    succeeds(
        Command::new("git")
            .args(["apply", "step.patch"])
            .current_dir(&tree)
            .env("GIT_CEILING_DIRECTORIES", ceiling),
    );
    // Only what a lane is made of is built, quickly, and apart: cargo would take the copy's crates for this tree's.
    let target = folder.join("add-a-step-built");
    let said = succeeds(
        Command::new(env!("CARGO"))
            .args(["test", "--offline", "--quiet", "-p", "firelane-lane", "--test", "all", "sieve"])
            .current_dir(&tree)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    );
    assert!(said.contains("1 passed"), "{said}");
    std::fs::remove_dir_all(&tree).unwrap();
}
