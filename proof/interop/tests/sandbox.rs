//! The sandbox itself: private, usable, and gone afterwards.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use firelane_interop::{Background, Sandbox, until};

#[test]
fn network_namespaces_inside_are_private_and_end_with_the_sandbox() {
    let sandbox = Sandbox::new();
    sandbox.run(None, "ip", &["netns", "add", "inner"]).expect_success();
    let links = sandbox.run(Some("inner"), "ip", &["-o", "link"]).expect_success();
    assert!(links.contains("lo") && !links.contains("eth"), "{links}");
    assert!(!std::path::Path::new("/run/netns/inner").exists(), "the name is visible inside only");
    let other = Sandbox::new();
    assert!(!other.run(None, "ip", &["netns", "list"]).expect_success().contains("inner"));
    let folder = sandbox.folder().to_owned();
    drop(sandbox);
    assert!(!folder.exists());
}

/// Only set in the process that the next test starts.
const CHILD: &str = "FIRELANE_SANDBOX_CHILD";

/// Not a test by itself: runs programs inside, writes down which and where, and waits to be killed.
#[test]
fn the_other_process() {
    let Some(file) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let sandbox = Sandbox::new();
    let pids = sandbox.folder().join("pids");
    let script = format!("echo $$ >>{}; exec sleep 600", pids.display());
    let words = ["sh", "-c", &script];
    let _alone = Background::start(sandbox.command(words[0]).args(&words[1..]));
    let _by_timeout = Background::start(sandbox.command("timeout").arg("600").args(words));
    until("both run", LIMIT, || lines(&pids).len() == 2);
    let half = file.with_extension("half");
    std::fs::write(&half, format!("{}\n{}\n", pids.display(), lines(&pids).join("\n"))).expect("writable");
    std::fs::rename(half, file).expect("writable");
    std::thread::sleep(LIMIT);
}

const LIMIT: Duration = Duration::from_secs(20);

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn what_runs_inside_ends_with_a_test_that_is_killed() {
    let file = std::env::temp_dir().join(format!("firelane-sandbox-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().expect("a test is a file"))
        .args(["--exact", "the_other_process"])
        .env(CHILD, &file)
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be started again");
    until("programs run inside", LIMIT, || file.exists());
    child.kill().and_then(|()| child.wait()).expect("our own child");
    let (told, mut pids) = (lines(&file), Vec::new());
    pids.extend(&told[1..]);
    // Who has ended and is not waited for yet has no command line.
    let runs = |pid: &&String| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| !it.is_empty());
    until("they end", LIMIT, || !pids.iter().any(runs));
    std::fs::remove_file(&file).expect("it is ours");
    let left = Path::new(&told[0]).parent().expect("the sandbox's folder");
    std::fs::remove_dir_all(left).expect("who is killed leaves it");
}

#[test]
fn a_failing_command_reports_its_code() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(None, "sh", &["-c", "exit 7"]).code(), 7);
}
