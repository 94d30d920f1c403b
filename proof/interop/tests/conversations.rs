//! Conversations of two ends that scripts draw by lot: each call tells on the netstack what it tells in the kernel. A part of `shim_more.rs`.

use firelane_interop::{On, Sandbox, Stage, soak_seed};

use crate::script;

/// Conversations that were drawn by lot, beside the kernel's: fused and by TCP.
fn converses_as_the_kernel(kind: &str, fusion: &str, first: u32, count: u32) {
    converses_there(&[], kind, fusion, first, count);
}

/// The same, started by other words.
fn converses_there(before: &[&str], kind: &str, fusion: &str, first: u32, count: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    stage.set_fusion(fusion);
    let more = [&first.to_string(), &count.to_string(), kind];
    let script = script("conversation.py");
    let program = [before, &["/usr/bin/python3", &script]].concat();
    tells_the_same(&stage, &program, &more, 12 * count as usize);
}

/// How much longer than usual scripts wait for what changes, where that was too short because others use the CPUs.
const PATIENCE: &str = "PATIENCE=8";

/// Binds itself to a CPU and becomes the program that is named behind it.
const BOUND: [&str; 3] = [
    "/usr/bin/python3",
    "-c",
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execv(sys.argv[1], sys.argv[1:])",
];

/// Each call of a conversation tells what it tells in the kernel.
pub(crate) fn converse(stage: &Stage<'_>, name: &str, more: &[&str], least: usize) {
    tells_the_same(stage, &["/usr/bin/python3", &script(name)], more, least);
}

/// A program whose arguments are its host's address and `more` tells what it tells in the kernel, so many lines at least.
fn tells_the_same(stage: &Stage<'_>, program: &[&str], more: &[&str], least: usize) {
    let ask = |patience| {
        [(On::Kernel, Stage::KERNEL), (On::Firelane, Stage::FIRELANE)].map(|(on, host)| {
            let words = [&["/usr/bin/env", patience], program, &[host], more].concat();
            stage.ask(on, &words)
        })
    };
    let [mut kernels, mut ours] = ask("PATIENCE=1");
    if kernels != ours {
        [kernels, ours] = ask(PATIENCE);
    }
    assert!(kernels.lines().count() > least, "{kernels}");
    for (at, (theirs, own)) in kernels.lines().zip(ours.lines()).enumerate() {
        let before: Vec<&str> = kernels.lines().take(at).skip(at.saturating_sub(8)).collect();
        assert_eq!(own, theirs, "behind {before:#?}");
    }
    assert_eq!(ours.lines().count(), kernels.lines().count());
    stage.wait_until_nothing_is_left();
}

#[test]
fn conversations_that_are_fused_are_as_the_kernels() {
    converses_as_the_kernel("plain", "on", 0, 15);
}

#[test]
fn conversations_by_tcp_are_as_the_kernels() {
    converses_as_the_kernel("plain", "off", 1000, 15);
}

#[test]
fn conversations_with_urgent_text_are_as_the_kernels() {
    converses_as_the_kernel("urgent", "off", 2005, 15);
}

#[test]
fn conversations_with_urgent_text_that_leaves_a_joint_are_as_the_kernels() {
    converses_as_the_kernel("urgent", "on", 2030, 15);
}

#[test]
fn conversations_in_an_epoll_set_are_as_the_kernels() {
    for fusion in ["on", "off"] {
        converses_as_the_kernel("sets", fusion, 3000, 8);
    }
}

#[test]
fn conversations_of_a_program_with_one_cpu_are_as_the_kernels() {
    for (nth, (kind, fusion)) in [("plain", "on"), ("sets", "on"), ("sets", "off")].into_iter().enumerate() {
        converses_there(&BOUND, kind, fusion, 7000 + 100 * nth as u32, 5);
    }
}

/// Conversations of datagram sockets that were drawn by lot, beside the kernel's.
fn datagrams_converse_as_the_kernels(kind: &str, first: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    converse(&stage, "datagram_conversation.py", &[&first.to_string(), "30", kind], 400);
}

#[test]
fn datagrams_are_conversed_by_as_in_the_kernel() {
    datagrams_converse_as_the_kernels("plain", 0);
}

#[test]
fn what_stands_beside_datagrams_is_as_the_kernels() {
    datagrams_converse_as_the_kernels("beside", 1000);
}

#[test]
fn datagrams_that_nobody_takes_are_refused_as_by_the_kernel() {
    datagrams_converse_as_the_kernels("refused", 2000);
}

#[test]
fn who_may_be_bound_where_is_as_in_the_kernel() {
    datagrams_converse_as_the_kernels("bound", 3000);
}

#[test]
fn groups_and_broadcasts_are_heard_as_in_the_kernel() {
    datagrams_converse_as_the_kernels("groups", 4000);
}

/// Conversations about one socket's options, beside the kernel's.
fn options_are_told_as_by_the_kernel(kind: &str, first: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    converse(&stage, "option_conversation.py", &[&first.to_string(), "25", kind], 400);
}

#[test]
fn options_of_streams_are_the_kernels() {
    options_are_told_as_by_the_kernel("streams", 0);
}

#[test]
fn options_of_datagram_sockets_are_the_kernels() {
    options_are_told_as_by_the_kernel("datagrams", 1000);
}

#[test]
fn connections_have_of_their_listener_what_the_kernels_have() {
    options_are_told_as_by_the_kernel("listeners", 2000);
}

#[test]
fn requests_and_flags_of_descriptors_are_the_kernels() {
    options_are_told_as_by_the_kernel("requests", 3000);
}

/// Lives of sockets that were drawn by lot, from their making to their end, beside the kernel's.
fn live_as_the_kernels(kind: &str, fusion: &str, first: u32, count: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    stage.set_fusion(fusion);
    converse(&stage, "lives.py", &[&first.to_string(), &count.to_string(), kind], 20 * count as usize);
}

#[test]
fn lives_of_streams_are_as_the_kernels() {
    live_as_the_kernels("streams", "on", 0, 6);
}

#[test]
fn lives_by_tcp_and_of_both_families_are_as_the_kernels() {
    live_as_the_kernels("families", "off", 1000, 6);
}

#[test]
fn lives_of_datagram_sockets_are_as_the_kernels() {
    live_as_the_kernels("datagrams", "on", 2000, 6);
}

/// Lives of sockets that several processes have, beside the kernel's: these fork, are spawned, become others, pass sockets, and die.
fn kin_live_as_the_kernels(kind: &str, fusion: &str, lanes: usize, first: u32, count: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, lanes);
    stage.set_fusion(fusion);
    converse(&stage, "kin.py", &[&first.to_string(), &count.to_string(), kind], 20 * count as usize);
}

#[test]
fn sockets_of_several_processes_live_as_the_kernels() {
    kin_live_as_the_kernels("streams", "on", 1, 0, 4);
}

#[test]
fn sockets_of_several_processes_by_tcp_and_of_all_kinds_live_as_the_kernels() {
    kin_live_as_the_kernels("families", "off", 2, 1000, 4);
}

/// Lives of datagram sockets of one or two programs, beside the kernel's: who of several gets what, and what is told of it.
fn datagrams_live_as_the_kernels(kind: &str, programs: u32, first: u32, count: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    let more = [&first.to_string(), &count.to_string(), kind, &programs.to_string()];
    converse(&stage, "datagram_lives.py", &more, 20 * count as usize);
}

#[test]
fn who_of_several_gets_a_datagram_is_as_in_the_kernel() {
    datagrams_live_as_the_kernels("who", 2, 0, 8);
}

#[test]
fn many_datagrams_in_a_call_and_who_waits_for_them_are_as_in_the_kernel() {
    datagrams_live_as_the_kernels("calls", 2, 1000, 8);
}

#[test]
fn what_is_said_beside_datagrams_well_or_not_is_taken_as_by_the_kernel() {
    datagrams_live_as_the_kernels("beside", 1, 2000, 8);
}

#[test]
fn errors_come_back_to_who_has_caused_them_as_in_the_kernel() {
    datagrams_live_as_the_kernels("errors", 2, 3000, 8);
}

#[test]
fn groups_and_their_sources_are_heard_by_whom_the_kernel_lets_hear_them() {
    datagrams_live_as_the_kernels("groups", 2, 4000, 8);
}

/// Lives of threads that sleep in calls while others do something to what they wait for, beside the kernel's: who comes back, with what, and when.
fn threads_live_as_the_kernels(kind: &str, fusion: &str, lanes: usize, first: u32, count: u32) {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, lanes);
    stage.set_fusion(fusion);
    let text = include_str!("shim/threads_lives.c");
    let program = sandbox.compiled("threads_lives", text, &["-pthread"]);
    let more = [&first.to_string(), &count.to_string(), kind];
    tells_the_same(&stage, &[&program.to_string_lossy()], &more, 4 * count as usize);
}

#[test]
fn who_sleeps_at_a_listener_that_another_thread_changes_is_told_as_by_the_kernel() {
    threads_live_as_the_kernels("listeners", "on", 1, 2000, 48);
}

#[test]
fn who_sleeps_at_a_set_that_another_thread_changes_is_told_as_by_the_kernel() {
    threads_live_as_the_kernels("sets", "on", 1, 3000, 48);
}

#[test]
fn who_sleeps_at_a_datagram_socket_that_another_thread_changes_is_told_as_by_the_kernel() {
    threads_live_as_the_kernels("datagrams", "on", 2, 4000, 48);
}

#[test]
#[ignore = "takes minutes"]
fn soak_kin() {
    let seed = soak_seed(10_000);
    for (at, (kind, fusion, lanes)) in (0..).zip([
        ("streams", "on", 1),
        ("streams", "off", 2),
        ("families", "on", 2),
        ("families", "off", 1),
    ]) {
        kin_live_as_the_kernels(kind, fusion, lanes, seed + 100 * at, 25);
    }
}

#[test]
#[ignore = "takes minutes"]
fn soak_threads_lives() {
    let seed = soak_seed(10_000);
    for (at, (kind, fusion, lanes)) in (0..).zip([
        ("streams", "on", 1),
        ("streams", "off", 2),
        ("listeners", "on", 2),
        ("sets", "on", 1),
        ("sets", "off", 2),
        ("datagrams", "on", 1),
    ]) {
        threads_live_as_the_kernels(kind, fusion, lanes, seed + 1000 * at, 50);
    }
}

#[test]
#[ignore = "takes minutes"]
fn soak_lives() {
    let seed = soak_seed(10_000);
    for (at, (kind, fusion)) in
        (0..).zip([("streams", "on"), ("streams", "off"), ("families", "on"), ("datagrams", "on")])
    {
        live_as_the_kernels(kind, fusion, seed + 100 * at, 60);
    }
}

#[test]
#[ignore = "takes minutes"]
fn soak_datagram_lives() {
    let seed = soak_seed(10_000);
    for (at, (kind, programs)) in (0..).zip([
        ("who", 2),
        ("calls", 1),
        ("calls", 2),
        ("beside", 2),
        ("errors", 2),
        ("groups", 1),
        ("groups", 2),
    ]) {
        datagrams_live_as_the_kernels(kind, programs, seed + 100 * at, 60);
    }
}
