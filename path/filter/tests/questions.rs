//! What has no handshake: a question and its answer give way to newcomers, and conversations do not.

mod common;

use common::*;
use firelane_filter::Verdict;

const SERVER: &str = "192.0.2.7:53";

#[test]
fn a_question_and_its_answer_give_way_and_conversations_stay() {
    let mut filter = filter_of(vec![rule(IN, PASS).keep(), rule(OUT, BLOCK)], 100);
    let client = |n: u16| format!("10.1.0.1:{}", 1000 + n);
    for n in 0..50 {
        ask(&mut filter, IN, &udp(&client(n), SERVER));
        ask(&mut filter, OUT, &udp(SERVER, &client(n)));
        ask(&mut filter, IN, &udp(&client(n), SERVER));
    }
    let mut later = |direction, packet: &[u8]| ask_at(&mut filter, direction, LINK, packet, 4).verdict;
    for n in 0..10_000_u32 {
        let stranger = format!("10.2.{}.{}:5", n >> 8, n & 255);
        assert_eq!(later(IN, &udp(&stranger, SERVER)), Verdict::Pass);
        assert_eq!(later(OUT, &udp(SERVER, &stranger)), Verdict::Pass);
        assert_eq!(later(OUT, &udp(SERVER, &stranger)), Verdict::Pass, "he has not heard it");
    }
    for n in 0..50 {
        assert_eq!(later(OUT, &udp(SERVER, &client(n))), Verdict::Pass, "{n}");
    }
    assert_eq!(later(IN, &syn("10.3.0.1:5", "192.0.2.7:80")), Verdict::Pass);
    let states = filter.counts().states;
    assert_eq!((states.active, states.evicted, states.full), (100, 9951, 0));
}
