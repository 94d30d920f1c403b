//! A netstack under packets, calls and time together, as lines of a packet script.
//!
//! The bytes choose lines of the language of `proof/scripts`, so every input is a scenario that reads like a script and
//! becomes one when it has found something. The laws are those of [`besieged`]: no panic, frames are conserved, memory is
//! bounded by what was asked for, and a neighbour on the same switch is served all the while.

use std::fmt::Write;

use firelane_scripts::Family;
use firelane_scripts::duel::{Exchange, besieged};

use crate::feedback::{TRACES, note};
use crate::input::Input;

const LINES_MAX: usize = 60;

/// Between two events: none, less than any timer, and more than each.
const TIMES: [&str; 10] = ["+0", "+0", "+0", "+.001", "+.01", "+.05", "+.3", "+1", "+5", "+70"];
/// What stands in front of a packet, seldom.
const ENVELOPES: [&str; 8] = [
    "",
    "",
    "",
    "ip(ttl 1) ",
    "ip(part 0:16 more, id 5) ",
    "ip(part 16:2000, id 5) ",
    "ip(broadcast) ",
    "ip(cut 30) ",
];
const OPTIONS: [&str; 12] = [
    "",
    "",
    "",
    "<mss 1000>",
    "<mss 1460,sackOK,TS val 1000 ecr 0,nop,wscale 7>",
    "<mss 0,nop,wscale 15>",
    "<nop,nop,TS val 2000 ecr 0>",
    "<nop,nop,TS val 1 ecr 9000000>",
    "<nop,nop,sack 1001:2001>",
    "<nop,nop,sack 1:1 3001:2001>",
    "<hex 22020101>",
    "<hex fd280000>",
];
const NUMBERS: [i64; 10] = [0, 1, 2, 101, 1001, 1461, 65_536, 1_000_001, -1, -3_000_000];
const LENGTHS: [i64; 6] = [0, 0, 0, 1, 1000, 1400];
const WINDOWS: [u16; 5] = [65_535, 0, 1, 500, 5000];
const OTHERS: [&str; 14] = [
    "udp 40000>7 (10)",
    "udp 40000>7 (1400)",
    "udp 0>9 (0)",
    "udp 40000>7 (10) len 7",
    "udp 40000>7 (10) nosum",
    "icmp echo 1 1 (1400)",
    "icmp reply 1 1 (8)",
    "icmp type 200 code 0 (8)",
    "icmp toobig 1280 about tcp 80>40000 1",
    "icmp toobig 68 about tcp 80>40000 1",
    "icmp unreachable port about tcp 80>40000 0",
    "icmp unreachable host about udp 7>40000",
    "icmp expired about tcp 80>40000 1001",
    "bytes 40",
];

/// Which family, how many lanes, and one line after the other.
pub fn target_netstack(data: &[u8]) {
    let mut input = Input::new(data);
    let family = if input.flag() { Family::V6 } else { Family::V4 };
    let mut siege = Siege { text: String::from("== siege: chosen\n"), ports: 80, streams: 0, datagrams: 0 };
    siege.setting(&mut input);
    for _ in 0..LINES_MAX {
        siege.line(&mut input);
        if input.is_empty() {
            break;
        }
    }
    let exchanges = Exchange::read_all(&siege.text);
    let exchanges = exchanges.unwrap_or_else(|error| panic!("{error}\n{}", siege.text));
    if *TRACES {
        eprintln!("{}", siege.text);
    }
    exchanges.iter().for_each(|exchange| besieged(exchange, family));
}

/// The scenario so far.
struct Siege {
    text: String,
    /// The next port to listen at.
    ports: u16,
    streams: usize,
    datagrams: usize,
}

impl Siege {
    fn setting(&mut self, input: &mut Input<'_>) {
        let settings = [
            "set lanes 1",
            "set lanes 2",
            "set tcp.syn_cookies always",
            "set rcvbuf 2000",
            "set tcp.ecn active",
        ];
        self.push(input.pick(&settings));
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn line(&mut self, input: &mut Input<'_>) {
        let time = input.pick(&TIMES);
        let choice = input.u8() & 0x0f;
        note(("line", choice, self.streams.min(4), time));
        let event = match choice {
            0..=6 => segment(input),
            7 => format!("< {}{}", input.pick(&ENVELOPES), input.pick(&OTHERS)),
            8 | 9 => self.opening(input),
            10..=14 if self.streams > 0 => self.call(input),
            _ => self.datagrams(input),
        };
        self.push(&format!("{time} {event}"));
    }

    /// A new connection, whole or half.
    fn opening(&mut self, input: &mut Input<'_>) -> String {
        self.ports += 1;
        self.streams += 1;
        let (name, port) = (self.streams - 1, self.ports);
        let words = input.pick(&["", ", sack", ", ts, sack, wscale 7", ", win 0", ", ecn, rtt .3"]);
        match input.below(3) {
            0 => format!("c{name} = connect({port})"),
            1 => format!("c{name} = opened({port}{words})"),
            _ => format!("c{name} = established({port}{words})"),
        }
    }

    fn call(&self, input: &mut Input<'_>) -> String {
        let name = format!("c{}", input.below(self.streams));
        match input.below(10) {
            0..=2 => format!("write({name}, {})", input.amount().min(70_000)),
            3..=5 => format!("read({name}, {})", input.amount().min(70_000)),
            6 => format!("shutdown({name})"),
            7 => format!("set({name}, nodelay, on)"),
            8 => format!("set({name}, keepalive, 1, 1, 2)"),
            _ => format!("connected({name})"),
        }
    }

    fn datagrams(&mut self, input: &mut Input<'_>) -> String {
        if self.datagrams == 0 || input.below(8) == 0 {
            self.datagrams += 1;
            return format!("u{} = bind({})", self.datagrams - 1, 6 + self.datagrams);
        }
        let name = format!("u{}", input.below(self.datagrams));
        match input.below(2) {
            0 => format!("send({name}, {}, to 40000)", input.amount().min(9_000)),
            _ => format!("recv({name}, 2000)"),
        }
    }
}

/// A segment near to what a connection expects, or not.
fn segment(input: &mut Input<'_>) -> String {
    let bits = input.u8();
    // Most segments have ACK and little else, or no connection would live long.
    let bits = if bits & 0x80 == 0 { bits & 0x08 | 0x80 } else { bits };
    let letters = "SFRPUEW.".chars().enumerate().filter(|(n, _)| bits >> n & 1 == 1);
    let letters: String = letters.map(|(_, letter)| letter).collect();
    let (seq, len) = (input.pick(&NUMBERS), input.pick(&LENGTHS));
    let mut line = format!("< {}{letters} {seq}:{}({len})", input.pick(&ENVELOPES), seq + len);
    // Writing into a string does not fail.
    let _ = write!(line, " ack {} win {}", input.pick(&NUMBERS), input.pick(&WINDOWS));
    let _ = write!(line, " {}", input.pick(&OPTIONS));
    line
}
