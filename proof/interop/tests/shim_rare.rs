//! The preloaded library, third part: what programs do rarely, with options, times and lists at their ends. Each script prints the
//! same on the netstack as in the kernel.

use std::path::Path;

use firelane_interop::{On, Sandbox, Stage};

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
        assert!(kernels.lines().count() >= least, "{kernels}");
        let ours = ask(On::Firelane, Stage::FIRELANE);
        assert_eq!(ours, kernels, "{lanes} lanes");
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn a_message_that_was_sent_in_part_is_the_last_of_its_call() {
    as_the_kernels("halves.py", 2);
}
