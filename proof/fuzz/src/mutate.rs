//! Changes to inputs, as a wire, a careless program or an attacker would make them.
//!
//! Every mutation is a function of the random stream and the corpus, so a seed names an input.

use crate::random::Random;

/// The longest input: a frame of two Ethernet MTUs, or a long scenario.
pub const INPUT_MAX: usize = 3072;

/// Values at which lengths, counts and offsets break.
const BYTES: [u8; 12] = [0, 1, 2, 4, 5, 7, 8, 0x0f, 0x7f, 0x80, 0xfe, 0xff];
const WORDS: [u16; 12] = [0, 1, 4, 7, 8, 19, 20, 40, 0x7fff, 0x8000, 0xfffe, 0xffff];

/// A new input out of `corpus`, which may be empty.
pub fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut input = base(random, corpus);
    for _ in 0..=random.below(6) {
        change(random, &mut input, corpus);
    }
    input.truncate(INPUT_MAX);
    input
}

fn base(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    if corpus.is_empty() || random.below(20) == 0 {
        let len = random.below(200);
        return random.bytes(len);
    }
    corpus[random.below(corpus.len())].clone()
}

fn change(random: &mut Random, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let len = input.len();
    if len == 0 {
        *input = random.bytes(8);
        return;
    }
    let at = random.below(len);
    let span = 1 + random.below(16.min(len - at));
    match random.below(12) {
        0 | 1 => input[at] ^= 1 << random.below(8),
        2 => input[at] = random.next_u64() as u8,
        3 => input[at] = BYTES[random.below(BYTES.len())],
        4 => input[at] = input[at].wrapping_add(random.below(9) as u8).wrapping_sub(4),
        5 => put_word(input, at, WORDS[random.below(WORDS.len())]),
        6 => put_word(input, at, (len + 4).wrapping_sub(random.below(48)) as u16),
        7 => drop(input.drain(at..at + span)),
        8 => {
            let fresh = random.bytes(span);
            drop(input.splice(at..at, fresh));
        }
        9 => {
            let again = input[at..at + span].to_vec();
            drop(input.splice(at..at, again));
        }
        10 => input.truncate(at),
        _ => splice(random, input, at, corpus),
    }
}

fn put_word(input: &mut [u8], at: usize, word: u16) {
    for (to, from) in input[at..].iter_mut().zip(word.to_be_bytes()) {
        *to = from;
    }
}

/// The rest of the input becomes a piece of another.
fn splice(random: &mut Random, input: &mut Vec<u8>, at: usize, corpus: &[Vec<u8>]) {
    if corpus.is_empty() {
        return;
    }
    let other = &corpus[random.below(corpus.len())];
    if !other.is_empty() {
        let from = random.below(other.len());
        input.truncate(at);
        input.extend_from_slice(&other[from..]);
    }
}
