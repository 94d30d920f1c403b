//! Scripts of `tests/shim`, which tests of the preloaded library run on a netstack, and beside it in the kernel.

use std::path::Path;

use crate::{On, Sandbox, Stage};

/// Where the script of this name is.
pub fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim").join(name).to_string_lossy().into_owned()
}

/// The first of the seeds of a soak: another one for each `PROPTEST_RNG_SEED`, with room behind it.
pub fn soak_seed(usual: u32) -> u32 {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|it| it.parse().ok());
    let seed = seed.map_or(usual, |it: u32| it % 1_000_000_000);
    println!("seed {seed}");
    seed
}

/// What the script prints on the netstack, with one lane and with two, and in the kernel is the same: more than `least` lines.
///
/// # Panics
/// It is not.
pub fn as_the_kernels(name: &str, least: usize) {
    as_the_kernels_with(&["on"], name, least);
}

/// The same with each of these values of `_fusion`.
///
/// # Panics
/// It is not.
pub fn as_the_kernels_with(fusions: &[&str], name: &str, least: usize) {
    let mut told = None;
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        let ask = |on, host| stage.ask(on, &["/usr/bin/python3", &script(name), host]);
        // It has no lanes, and tells the same again. Not at a time with the other: each hears what the other sends to groups.
        let kernels = told.get_or_insert_with(|| ask(On::Kernel, Stage::KERNEL));
        assert!(kernels.lines().count() > least, "{kernels}");
        for fusion in fusions {
            stage.set_fusion(fusion);
            assert_eq!(ask(On::Firelane, Stage::FIRELANE), *kernels, "{lanes} lanes, fusion={fusion}");
        }
        stage.wait_until_nothing_is_left();
    }
}
