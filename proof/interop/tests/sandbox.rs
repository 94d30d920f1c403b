//! The sandbox itself: private, usable, and gone afterwards.

use firelane_interop::Sandbox;

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

#[test]
fn a_failing_command_reports_its_code() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(None, "sh", &["-c", "exit 7"]).code(), 7);
}
