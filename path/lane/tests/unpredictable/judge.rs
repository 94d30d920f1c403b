//! Whether numbers look as if nobody could guess them: tests after NIST SP 800-22 rev. 1a, chi-squared tests of values and of
//! neighbours, and correlations.
//!
//! Each test answers with the chance that true random numbers look no better. A source is rejected if one of its tests says less
//! than [`LEAST`]: the seeds of the test are fixed, so one that passes does so each time.

/// Some thousand tests with this chance each err once in a hundred choices of seeds.
const LEAST: f64 = 1e-6;
/// How many values a bin of a chi-squared test has on average, at the least.
const BIN_LEAST: usize = 16;
/// How far apart the values are whose correlation is measured.
const LAGS: [usize; 6] = [1, 2, 3, 4, 7, 256];

/// A test's name, and the chance.
pub(crate) type Finding = (String, f64);

/// All tests of numbers of `width` bits, those that they fail.
pub(crate) fn faults(values: &[u32], width: u32) -> Vec<Finding> {
    let mut all = of_values("", values, width);
    let mask = u32::MAX >> (32 - width);
    let differences: Vec<u32> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) & mask).collect();
    let flips: Vec<u32> = values.windows(2).map(|pair| pair[1] ^ pair[0]).collect();
    all.extend(of_values("differences: ", &differences, width));
    all.push(("flips: chi-squared of values".to_owned(), chi_squared(&flips, width)));
    all.push(("pairs of neighbours".to_owned(), neighbours(values, width)));
    for lag in LAGS {
        all.push((format!("correlation at {lag}"), correlation(values, &values[lag..])));
    }
    all.retain(|&(_, chance)| chance.is_nan() || chance < LEAST);
    all
}

/// Whether two kinds of numbers, of the same connections, say anything about each other.
pub(crate) fn faults_between(one: &[u32], other: &[u32], width: u32) -> Vec<Finding> {
    let joined: Vec<u32> = one.iter().zip(other).map(|(a, b)| a ^ b).collect();
    let mut all = of_values("joined: ", &joined, width);
    all.push(("correlation".to_owned(), correlation(one, other)));
    all.retain(|&(_, chance)| chance.is_nan() || chance < LEAST);
    all
}

fn of_values(which: &str, values: &[u32], width: u32) -> Vec<Finding> {
    let is_set = |value: u32, bit: u32| value >> bit & 1 == 1;
    let bits: Vec<bool> =
        values.iter().flat_map(|&value| (0..width).rev().map(move |bit| is_set(value, bit))).collect();
    let mut all = vec![
        (format!("{which}frequency"), frequency(&bits)),
        (format!("{which}block frequency"), block_frequency(&bits, 128)),
        (format!("{which}runs"), runs(&bits)),
        (format!("{which}longest excursion"), excursion(&bits)),
        (format!("{which}chi-squared of values"), chi_squared(values, width)),
    ];
    let (serial, entropy) = patterns(&bits, 8);
    all.extend(serial.map(|chance| (format!("{which}serial"), chance)));
    all.push((format!("{which}approximate entropy"), entropy));
    for bit in 0..width {
        let column: Vec<bool> = values.iter().map(|&value| is_set(value, bit)).collect();
        all.push((format!("{which}frequency of bit {bit}"), frequency(&column)));
        all.push((format!("{which}runs of bit {bit}"), runs(&column)));
    }
    all
}

/// §2.1: as many ones as zeros.
fn frequency(bits: &[bool]) -> f64 {
    let (n, ones) = (bits.len() as f64, bits.iter().filter(|&&bit| bit).count() as f64);
    erfc((2.0 * ones - n).abs() / n.sqrt() / 2_f64.sqrt())
}

/// §2.2: the same in each block.
fn block_frequency(bits: &[bool], len: usize) -> f64 {
    let blocks = bits.chunks_exact(len);
    let count = blocks.len() as f64;
    let off = |block: &[bool]| block.iter().filter(|&&bit| bit).count() as f64 / len as f64 - 0.5;
    let sum: f64 = blocks.map(|block| off(block).powi(2)).sum();
    upper_gamma(count / 2.0, 4.0 * len as f64 * sum / 2.0)
}

/// §2.3: neither too many changes nor too few.
fn runs(bits: &[bool]) -> f64 {
    let n = bits.len() as f64;
    let share = bits.iter().filter(|&&bit| bit).count() as f64 / n;
    let runs = 1.0 + bits.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64;
    let spread = share * (1.0 - share);
    if spread == 0.0 {
        return 0.0;
    }
    erfc((runs - 2.0 * n * spread).abs() / (2.0 * (2.0 * n).sqrt() * spread))
}

/// §2.13: how far a walk goes that steps up for a one and down for a zero. Of the sum for its distribution what counts.
fn excursion(bits: &[bool]) -> f64 {
    let (mut at, mut most) = (0_i64, 1_i64);
    for &bit in bits {
        at += if bit { 1 } else { -1 };
        most = most.max(at.abs());
    }
    let (n, z) = (bits.len() as f64, most as f64);
    let below = |x: f64| 1.0 - erfc(x * z / n.sqrt() / 2_f64.sqrt()) / 2.0;
    let limit = (n / z) as i64 / 4 + 1;
    let terms = |from: i64, a: f64, b: f64| -> f64 {
        let of = |k: i64| below(4.0 * k as f64 + a) - below(4.0 * k as f64 + b);
        (from.max(-limit)..=limit).map(of).sum()
    };
    1.0 - terms(-limit, 1.0, -1.0) + terms(-limit - 1, 3.0, 1.0)
}

/// §2.11 and §2.12: how often each pattern of `len` bits comes, beside those that are one and two shorter, and one longer.
fn patterns(bits: &[bool], len: u32) -> ([f64; 2], f64) {
    let n = bits.len() as f64;
    let counts = |len: u32| {
        let mut counts = vec![0_u32; 1 << len];
        let mut pattern = 0;
        for (at, &bit) in bits.iter().chain(&bits[..(len as usize).saturating_sub(1)]).enumerate() {
            pattern = (pattern << 1 | usize::from(bit)) & (counts.len() - 1);
            if at + 1 >= len as usize {
                counts[pattern] += 1;
            }
        }
        counts
    };
    let squares = |counts: &[u32]| {
        let sum: f64 = counts.iter().map(|&count| f64::from(count).powi(2)).sum();
        counts.len() as f64 / n * sum - n
    };
    let phi = |counts: &[u32]| -> f64 {
        let shares = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count) / n);
        shares.map(|share| share * share.ln()).sum()
    };
    let [shortest, short, whole, long] = [len - 2, len - 1, len, len + 1].map(counts);
    let (a, b, c) = (squares(&whole), squares(&short), squares(&shortest));
    let freedom = f64::from(1_u32 << (len - 1));
    let serial =
        [upper_gamma(freedom / 2.0, (a - b) / 2.0), upper_gamma(freedom / 4.0, (a - 2.0 * b + c) / 2.0)];
    let apart = 2.0 * n * (2_f64.ln() - (phi(&whole) - phi(&long)));
    (serial, upper_gamma(freedom, apart / 2.0))
}

/// Each value, or each of as many ranges as there are values for, comes as often.
fn chi_squared(values: &[u32], width: u32) -> f64 {
    let bits = ((values.len() / BIN_LEAST).max(2).ilog2()).min(width);
    of_bins(values.iter().map(|value| (value >> (width - bits)) as usize), values.len(), 1 << bits)
}

/// A value and the next one: all squares of the plane come as often.
fn neighbours(values: &[u32], width: u32) -> f64 {
    let bits = ((values.len() / BIN_LEAST).max(4).ilog2() / 2).min(width);
    let part = |value: u32| (value >> (width - bits)) as usize;
    let pairs = values.chunks_exact(2).map(|pair| part(pair[0]) << bits | part(pair[1]));
    of_bins(pairs, values.len() / 2, 1 << (2 * bits))
}

fn of_bins(bins: impl Iterator<Item = usize>, count: usize, of: usize) -> f64 {
    let mut counts = vec![0_u32; of];
    bins.for_each(|bin| counts[bin] += 1);
    let expected = count as f64 / of as f64;
    let sum: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2)).sum();
    let chance = upper_gamma((of - 1) as f64 / 2.0, sum / expected / 2.0);
    // What is too even was made so: a counter that goes round.
    chance.min(1.0 - chance) * 2.0
}

/// Pearson's, which has a standard deviation of one by the root of the count.
fn correlation(one: &[u32], other: &[u32]) -> f64 {
    let n = one.len().min(other.len());
    let (one, other) = (&one[..n], &other[..n]);
    let mean = |values: &[u32]| values.iter().map(|&value| f64::from(value)).sum::<f64>() / n as f64;
    let (a, b) = (mean(one), mean(other));
    let (mut both, mut square_a, mut square_b) = (0.0, 0.0, 0.0);
    for (&x, &y) in one.iter().zip(other) {
        let (x, y) = (f64::from(x) - a, f64::from(y) - b);
        (both, square_a, square_b) = (both + x * y, square_a + x * x, square_b + y * y);
    }
    let size = (square_a * square_b).sqrt();
    if size == 0.0 { 0.0 } else { erfc((both / size).abs() * (n as f64).sqrt() / 2_f64.sqrt()) }
}

fn erfc(x: f64) -> f64 {
    let tail = upper_gamma(0.5, x * x);
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// Q(a, x), the share of the gamma function above `x`: a series where that converges fast, and a continued fraction elsewhere.
fn upper_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let scale = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-15 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return (1.0 - sum * scale).max(0.0);
    }
    // Lentz' method.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut h = d;
    for i in 1..100_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        let step = d * c;
        h *= step;
        if (step - 1.0).abs() < 1e-14 {
            break;
        }
    }
    h * scale
}

/// Stirling's series, from ten on upwards.
fn ln_gamma(mut a: f64) -> f64 {
    let mut below = 0.0;
    while a < 10.0 {
        below += a.ln();
        a += 1.0;
    }
    let inverse = 1.0 / a;
    let square = inverse * inverse;
    let series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (a - 0.5) * a.ln() - a + (2.0 * std::f64::consts::PI).ln() / 2.0 + series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(text: &str) -> Vec<bool> {
        text.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| byte == b'1').collect()
    }

    /// The examples of SP 800-22, with the results that it gives.
    #[test]
    fn nists_examples_come_out() {
        let pi = bits(
            "11001001000011111101101010100010001000010110100011000010001101001100010011000110011000101000101110 00",
        );
        assert_eq!(pi.len(), 100);
        let near = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-5, "{got} {wanted}");
        near(frequency(&pi), 0.109_599);
        near(block_frequency(&pi, 10), 0.706_438);
        near(runs(&pi), 0.500_798);
        near(excursion(&pi), 0.219_194);
        near(patterns(&pi, 2).1, 0.235_301);
        let ([first, second], _) = patterns(&bits("0011011101"), 3);
        near(first, 0.808_792);
        near(second, 0.670_320);
        // Q(3, 0.5) and Q(0.5, 4.5) from tables.
        near(upper_gamma(3.0, 0.5), 0.985_612);
        near(erfc(4.5_f64.sqrt()), 0.002_700);
    }
}
