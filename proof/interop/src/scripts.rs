//! Scripts of `tests/shim`, which tests of the preloaded library run on a netstack, and beside it in the kernel.

use std::path::Path;

use crate::{On, Sandbox, Stage};

/// Where the script of this name is.
pub fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim").join(name).to_string_lossy().into_owned()
}

/// What the script prints on the netstack, with one lane and with two, and in the kernel is the same: more than `least` lines.
///
/// # Panics
/// It is not.
pub fn as_the_kernels(name: &str, least: usize) {
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
