//! Scripts of `tests/shim`, which tests of the preloaded library run on a netstack, and beside it in the kernel.

use std::path::Path;

use crate::{On, Sandbox, Stage};

/// Where the script of this name is.
pub fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim").join(name).to_string_lossy().into_owned()
}

/// Both at a time: most of what scripts do is waiting.
///
/// # Panics
/// One of them does.
pub fn both<A: Send, B>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), other)
    })
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
        let ask_with = |fusion: &&str| {
            stage.set_fusion(fusion);
            ask(On::Firelane, Stage::FIRELANE)
        };
        let ours = || fusions.iter().map(ask_with).collect::<Vec<String>>();
        let (kernels, ours) = match told.take() {
            None => both(|| ask(On::Kernel, Stage::KERNEL), ours),
            // It has no lanes, and tells the same again.
            Some(kernels) => (kernels, ours()),
        };
        assert!(kernels.lines().count() > least, "{kernels}");
        for (fusion, told) in fusions.iter().zip(ours) {
            assert_eq!(told, kernels, "{lanes} lanes, fusion={fusion}");
        }
        stage.wait_until_nothing_is_left();
        told = Some(kernels);
    }
}
