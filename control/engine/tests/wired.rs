//! Two netstacks with a wire between them, each with an engine of its own: 10.0.0.1 and 10.0.0.2.

use firelane::{Queue, Stack, WireConfig, wire};

fn both(build: impl Fn(Queue, u8) -> Stack) -> [Stack; 2] {
    let (left, right) = wire(WireConfig::default());
    [build(left.into(), 1), build(right.into(), 2)]
}

/// The server's and the client's.
pub(crate) fn pair() -> [Stack; 2] {
    both(|end, n| {
        Stack::builder().interface(end).address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    })
}

/// The same with so many lanes each, and fd00::1 and fd00::2.
pub(crate) fn pair_with_lanes(lanes: usize) -> [Stack; 2] {
    both(|end, n| {
        let builder =
            Stack::builder().lanes(lanes).interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        let builder = builder.address(&format!("10.0.0.{n}/24")).unwrap();
        builder.address(&format!("fd00::{n}/64")).unwrap().build().unwrap()
    })
}
