//! The preloaded library, second part: what is shared between processes, errors of ICMP, signals, echoes. Each script prints
//! the same on the netstack as in the kernel.

use std::path::Path;
use std::time::{Duration, Instant};

use firelane_interop::{On, Sandbox, Stage, search_path};

fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim").join(name).to_string_lossy().into_owned()
}

/// What the script prints on the netstack and in the kernel is the same.
fn as_the_kernels(name: &str, least: usize) {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script(name), host]);
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() > least, "{kernels}");
        let ours = ask(On::Firelane, Stage::FIRELANE);
        assert_eq!(ours, kernels, "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn parents_and_children_share_what_is_theirs_and_nothing_else() {
    as_the_kernels("forked.py", 20);
}

/// One of the program's few first connections is asked for, all others are begun by words of blocks that it is offered.
#[test]
fn connections_that_a_program_begins_by_itself_are_as_those_that_it_asks_for() {
    as_the_kernels("begun.py", 60);
}

#[test]
fn sockets_that_were_closed_make_the_next_ones() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| {
            let told = stage.ask(on, &["/usr/bin/python3", &script("kept.py"), host]);
            let (passed, distinct) =
                told.split_once("distinct ").expect("it says how many descriptors it saw");
            let distinct: u32 = distinct.split_whitespace().next().unwrap().parse().unwrap();
            (passed.to_owned(), distinct)
        };
        let (kernels, all) = ask(On::Kernel, Stage::KERNEL);
        let (ours, some) = ask(On::Firelane, Stage::FIRELANE);
        assert_eq!(ours, kernels, "{lanes} lanes");
        assert!(all == 200 && some < 80, "{some} of {all}");
        stage.wait_until_nothing_is_left();
    }
}

/// The same where a program in the kernel's namespace makes the routers' errors.
fn as_the_kernels_with_routers(name: &str, least: usize) {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| {
            let routers = ["/usr/bin/python3", &script("icmp.py"), Stage::KERNEL, "7100"];
            let routers = stage.serve(On::Kernel, &routers);
            let deadline = Instant::now() + Duration::from_secs(20);
            while !routers.log().contains("ready") {
                assert!(Instant::now() < deadline, "{}", routers.log());
                std::thread::sleep(Duration::from_millis(10));
            }
            let told = stage.ask(on, &["/usr/bin/python3", &script(name), host]);
            routers.expect_success();
            told
        };
        let kernels = ask(On::Kernel, Stage::KERNEL);
        assert!(kernels.lines().count() > least, "{kernels}");
        assert_eq!(ask(On::Firelane, Stage::FIRELANE), kernels, "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn datagrams_that_do_not_arrive_are_told_as_the_kernels() {
    as_the_kernels_with_routers("faults.py", 50);
}

#[test]
fn echoes_are_asked_for_as_in_the_kernel() {
    as_the_kernels_with_routers("echoes.py", 30);
}

#[test]
fn ping_finds_who_is_there() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        // A copy has no rights of its own, with which the loader would leave the library away.
        let ping = stage.folder().join("ping");
        let installed =
            search_path().split(':').map(|folder| Path::new(folder).join("ping")).find(|it| it.exists());
        std::fs::copy(installed.expect("ping is installed"), &ping).unwrap();
        let ping = ping.to_string_lossy();
        for far in [Stage::KERNEL, Stage::FIRELANE] {
            let told = stage.ask(On::Firelane, &[&ping, "-n", "-c", "3", "-i", "0.2", far]);
            assert!(told.contains("3 packets transmitted, 3 received, 0% packet loss"), "{told}");
        }
        let silent = stage.run(On::Firelane, &[&ping, "-n", "-c", "1", "-W", "9", "10.0.0.77"]);
        assert!(!silent.status.success());
        assert!(silent.stdout.contains("Destination Host Unreachable"), "{silent:?}");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn priorities_and_paces_are_the_kernels() {
    as_the_kernels("priority.py", 30);
}
