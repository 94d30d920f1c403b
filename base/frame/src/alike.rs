//! Which of sixteen words are one that is looked for, all compared at once.
//!
//! Tables that keep a cache line of hashes before their places ask so with each packet (`path/classify`). A compiler makes
//! three times as many instructions of the loop, which stands below for other processors and for the test.

/// A bit for each of `words` that is `wanted`, the first one lowest.
#[inline]
pub fn alike(words: &[u32; 16], wanted: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every processor of this kind has SSE2.
        unsafe { alike_by_fours(words, wanted) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        alike_one_by_one(words, wanted)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn alike_by_fours(words: &[u32; 16], wanted: u32) -> u32 {
    use core::arch::x86_64::{
        _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set_epi32, _mm_set1_epi32,
    };
    let wanted = _mm_set1_epi32(wanted as i32);
    let (fours, _) = words.as_chunks::<4>();
    let four = |nth: usize| {
        let [a, b, c, d] = fours[nth].map(|word| word as i32);
        _mm_cmpeq_epi32(_mm_set_epi32(d, c, b, a), wanted)
    };
    let (low, high) = (_mm_packs_epi32(four(0), four(1)), _mm_packs_epi32(four(2), four(3)));
    _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn alike_one_by_one(words: &[u32; 16], wanted: u32) -> u32 {
    words.iter().enumerate().fold(0, |bits, (nth, &word)| bits | u32::from(word == wanted) << nth)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    proptest! {
        #[test]
        fn both_ways_find_the_same(
            words in prop::array::uniform16(select(vec![0, 1, 2, 0x7fff_ffff, 0x8000_0000, 0xffff_8000, u32::MAX])),
            wanted in select(vec![0, 1, 3, 0x7fff_ffff, 0x8000_0000, 0xffff_8000, u32::MAX]),
        ) {
            prop_assert_eq!(alike(&words, wanted), alike_one_by_one(&words, wanted));
        }
    }
}
