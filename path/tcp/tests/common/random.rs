//! A small seeded generator (SplitMix64), so that a seed is the whole story of a run.

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.between(0, among.len() as u64 - 1) as usize]
    }

    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }
}

/// Runs the seeds and names the first that fails.
pub fn each_seed(seeds: std::ops::Range<u64>, run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    let more = std::env::var("SEEDS").ok().and_then(|count| count.parse().ok());
    for seed in seeds.start..more.unwrap_or(seeds.end) {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("replay with SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
