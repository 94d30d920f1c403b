//! What a shell completes: bash is asked, with the script that `firelane completion` writes.

use std::process::{Command, Stdio};

/// What bash offers for the last of `words`.
fn offered(command: &[&str], words: &[&str]) -> Vec<String> {
    let firelane = env!("CARGO_BIN_EXE_firelane");
    let written =
        Command::new(firelane).arg("completion").arg("bash").args(command).output().expect("it is built");
    assert!(written.status.success(), "{written:?}");
    let name = command.first().copied().unwrap_or("firelane");
    let (last, before) = (words.last().expect("a word"), words[words.len().saturating_sub(2)]);
    let ask = format!(
        "\nCOMP_WORDS=({}); COMP_CWORD={}; _{name} {name} '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" ").replace("''", "\"\""),
        words.len() - 1
    );
    let script = String::from_utf8(written.stdout).expect("text") + &ask;
    let asked =
        Command::new("bash").arg("-c").arg(script).stdin(Stdio::null()).output().expect("bash is installed");
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_solaris_command_is_completed_by_its_own_name_and_behind_firelane() {
    for (command, before) in [(&[][..], vec!["firelane", "dladm"]), (&["dladm"], vec!["dladm"])] {
        let of = |word| offered(command, &[before.as_slice(), &[word]].concat());
        assert_eq!(of("show-linkp"), ["show-linkprop"]);
        assert_eq!(of("create-v"), ["create-vnic", "create-vlan"]);
        let of = |word| offered(command, &[before.as_slice(), &["create-vnic", word]].concat());
        assert_eq!(of("--mac-a"), ["--mac-address"]);
        assert!(of("-").iter().any(|it| it == "-l"), "{:?}", of("-"));
    }
}

#[test]
fn what_a_command_refuses_is_not_offered() {
    let of = |words: &[&str]| offered(&[words[0]], &[words, &["-"]].concat());
    for (words, absent, present) in [
        (&["dlstat"][..], &["-l", "--link", "-h", "-s", "-F"][..], &["-a", "-A", "-T"][..]),
        (&["dlstat", "show-phys"], &["-A", "-F", "-h"], &["-a", "-r"]),
        (&["dlstat", "show-aggr"], &["-a", "-A"], &["-i"]),
        (&["dlstat", "show-link"], &["-A", "-l"], &["-F", "-h", "-s", "-a"]),
        (&["flowstat"], &["--fanout"], &["-l", "-A", "-h"]),
        (&["dladm", "create-vnic"], &["-R", "-V", "-A", "-f", "--root-dir"], &["-t", "-m"]),
        (&["flowadm", "add-flow"], &["-R"], &["-l"]),
    ] {
        let offered = of(words);
        let has = |word: &&str| offered.iter().any(|it| it == word);
        assert!(!absent.iter().any(has), "{words:?}: {offered:?}");
        assert!(present.iter().all(has), "{words:?}: {offered:?}");
    }
}

#[test]
fn every_command_has_a_completion_in_every_shell() {
    let firelane = env!("CARGO_BIN_EXE_firelane");
    let commands = [
        ("acctadm", "enable"),
        ("dladm", "show-wire"),
        ("flowadm", "set-flowprop"),
        ("ipadm", "create-addr"),
        ("ipf", "flush"),
        ("ipfstat", "json"),
        ("ipnat", "json"),
        ("ippool", "pool"),
        ("route", "delete"),
        ("dlstat", "show-link"),
        ("flowstat", "transmit"),
        ("netstat", "json"),
        ("connstat", "json"),
    ];
    for shell in ["bash", "zsh", "fish"] {
        for (command, word) in commands {
            let written =
                Command::new(firelane).args(["completion", shell, command]).output().expect("built");
            let text = String::from_utf8_lossy(&written.stdout).into_owned();
            assert!(text.contains(command) && text.contains(word), "{shell} {command}: {text}");
        }
    }
    let refused = Command::new(firelane).args(["completion", "bash", "frob"]).output().expect("built");
    assert_eq!(refused.status.code(), Some(2));
}
