//! The sample size of each file. DLIO's law: two sides per file, drawn from the normal distribution by NumPy's legacy
//! generator with seed 10, so that our data sets have the same file sizes as DLIO's. Two further laws draw from the
//! same generator.

use crate::shape::{Element, FileShape};

/// The seed that DLIO uses for NumPy before it draws the sides.
const DLIO_SIZE_SEED: u32 = 10;

/// The sample dimensions of every file of a data set, train files first, then validation files.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All files have the same dimensions.
    Same(Vec<u64>),
    /// Two sides per file. The generator is a sequential stream without random access, so the sides are stored: 8 bytes
    /// per file, which the plan's memory estimate includes.
    Drawn(Vec<[u32; 2]>),
}

impl Sizes {
    /// Sides for `files` files of about `record_bytes` per sample, by DLIO's law.
    pub fn dlio(record_bytes: f64, stdev_bytes: f64, files: u64) -> Sizes {
        let side = record_bytes.max(0.0).sqrt().floor();
        if stdev_bytes <= 0.0 {
            return Sizes::Same(vec![(side as u64).max(1); 2]);
        }
        let spread = stdev_bytes / 2.0 / record_bytes.sqrt();
        let mut normal = LegacyNormal::new(DLIO_SIZE_SEED);
        // NumPy truncates toward zero, and so does the cast, which also turns a negative draw into 0; hence the minimum
        // of 1.
        let mut draw = || ((side + spread * normal.next()) as u32).max(1);
        Sizes::Drawn((0..files).map(|_| [draw(), draw()]).collect())
    }

    /// Sides for `files` files whose sample sizes have exactly the requested mean and standard deviation. DLIO draws
    /// the two sides independently, which gives only 0.7 of the standard deviation.
    pub fn exact(record_bytes: f64, stdev_bytes: f64, files: u64) -> Sizes {
        if stdev_bytes <= 0.0 {
            return Sizes::dlio(record_bytes, 0.0, files);
        }
        Sizes::drawn(files, |normal| record_bytes + stdev_bytes * normal)
    }

    /// Sides for `files` files with lognormal sample sizes: half the median is as frequent as twice the median. The
    /// logarithm has the standard deviation `sigma`.
    pub(crate) fn lognormal(median_bytes: f64, sigma: f64, files: u64) -> Sizes {
        if sigma <= 0.0 {
            return Sizes::dlio(median_bytes, 0.0, files);
        }
        Sizes::drawn(files, |normal| median_bytes * (sigma * normal).exp())
    }

    /// Sides for `files` files. `bytes` maps a normal value to a sample size.
    fn drawn(files: u64, bytes: impl Fn(f64) -> f64) -> Sizes {
        let mut normal = LegacyNormal::new(DLIO_SIZE_SEED);
        let mut draw = || {
            let bytes = bytes(normal.next()).max(1.0);
            // As square as possible; the other side compensates for rounding.
            let side = bytes.sqrt().round().max(1.0);
            [side as u32, ((bytes / side).round() as u32).max(1)]
        };
        Sizes::Drawn((0..files).map(|_| draw()).collect())
    }

    /// Calls `f` with the shape of file `file`.
    pub fn with_shape<T>(
        &self,
        file: u64,
        element: Element,
        samples: u64,
        f: impl FnOnce(&FileShape<'_>) -> T,
    ) -> T {
        match self {
            Sizes::Same(dims) => f(&FileShape { dims, element, samples }),
            Sizes::Drawn(sides) => {
                let [a, b] = sides[file as usize];
                f(&FileShape { dims: &[u64::from(a), u64::from(b)], element, samples })
            }
        }
    }

    /// Memory used by the table.
    pub(crate) fn table_bytes(&self) -> u64 {
        match self {
            Sizes::Same(_) => 0,
            Sizes::Drawn(sides) => (size_of::<[u32; 2]>() * sides.len()) as u64,
        }
    }
}

/// NumPy's legacy normal generator: MT19937 and Marsaglia's polar method, two values per accepted pair.
struct LegacyNormal {
    twister: Twister,
    kept: Option<f64>,
}

impl LegacyNormal {
    fn new(seed: u32) -> LegacyNormal {
        LegacyNormal { twister: Twister::new(seed), kept: None }
    }

    fn next(&mut self) -> f64 {
        if let Some(kept) = self.kept.take() {
            return kept;
        }
        loop {
            let x = 2.0 * self.twister.double() - 1.0;
            let y = 2.0 * self.twister.double() - 1.0;
            let r = x * x + y * y;
            if r < 1.0 && r != 0.0 {
                let f = (-2.0 * r.ln() / r).sqrt();
                self.kept = Some(f * x);
                return f * y;
            }
        }
    }
}

/// MT19937 (Matsumoto and Nishimura 1998), seeded as in NumPy from an integer.
struct Twister {
    state: [u32; 624],
    index: usize,
}

impl Twister {
    fn new(seed: u32) -> Twister {
        let mut state = [seed; 624];
        for i in 1..624 {
            let previous: u32 = state[i - 1];
            state[i] = (previous ^ (previous >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Twister { state, index: 624 }
    }

    fn word(&mut self) -> u32 {
        if self.index == 624 {
            self.twist();
        }
        let mut y = self.state[self.index];
        self.index += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn twist(&mut self) {
        for i in 0..624 {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % 624] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + 397) % 624] ^ (y >> 1) ^ odd;
        }
        self.index = 0;
    }

    /// A double in [0, 1) with 53 random bits.
    fn double(&mut self) -> f64 {
        let high = f64::from(self.word() >> 5);
        let low = f64::from(self.word() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(sizes: &Sizes, files: u64) -> Vec<u64> {
        (0..files)
            .map(|file| sizes.with_shape(file, Element::Uint8, 1, |shape| shape.payload_bytes()))
            .collect()
    }

    #[test]
    fn the_legacy_generator_gives_numpys_values() {
        let mut normal = LegacyNormal::new(10);
        for expected in [1.3315865, 0.71527897, -1.54540029, -0.00838385, 0.62133597] {
            let value = normal.next();
            assert!((value - expected).abs() < 1e-8, "{value} {expected}");
        }
    }

    #[test]
    fn file_sizes_are_dlios() {
        let unet3d = Sizes::dlio(146_600_628.0, 68_341_808.0, 168);
        let sizes = bytes(&unet3d, 168);
        assert_eq!(sizes[..4], [224_093_125, 93_582_835, 139_625_640, 159_581_528]);
        assert_eq!(sizes.iter().sum::<u64>(), 25_285_981_919);
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&46_888_650), Some(&301_601_979)));
        let cosmoflow = Sizes::dlio(2_828_486.0, 71_311.0, 4);
        assert_eq!(bytes(&cosmoflow, 4), [2_898_464, 2_768_640, 2_820_510, 2_837_538]);
    }

    #[test]
    fn without_spread_all_files_are_squares() {
        for (record, side) in [(114_660.07, 338), (322_957.0, 568), (4096.0, 64), (512.0, 22), (0.5, 1)] {
            assert_eq!(Sizes::dlio(record, 0.0, 1_000_000), Sizes::Same(vec![side, side]));
        }
    }

    #[test]
    fn the_exact_law_gives_the_requested_spread_and_dlios_gives_less() {
        let (mean, spread) = (146_600_628.0, 40_000_000.0);
        let of = |sizes: &Sizes| {
            let sizes: Vec<f64> = bytes(sizes, 14_000).into_iter().map(|size| size as f64).collect();
            let average = sizes.iter().sum::<f64>() / sizes.len() as f64;
            let variance =
                sizes.iter().map(|size| (size - average).powi(2)).sum::<f64>() / sizes.len() as f64;
            (average / mean, variance.sqrt() / spread)
        };
        let (average, deviation) = of(&Sizes::exact(mean, spread, 14_000));
        assert!((average - 1.0).abs() < 0.01 && (deviation - 1.0).abs() < 0.02, "{average} {deviation}");
        let (_, deviation) = of(&Sizes::dlio(mean, spread, 14_000));
        assert!((deviation - 0.707).abs() < 0.02, "{deviation}");
        assert_eq!(Sizes::exact(1000.0, 0.0, 5), Sizes::dlio(1000.0, 0.0, 5));
    }

    #[test]
    fn the_lognormal_law_gives_median_mean_and_sigma() {
        let (files, median, sigma) = (16_384, 112_000.0, 0.5);
        let mut sizes = bytes(&Sizes::lognormal(median, sigma, files), files);
        let logarithms: Vec<f64> = sizes.iter().map(|size| (*size as f64).ln()).collect();
        let spread = crate::metrics::Spread::of(&logarithms).unwrap();
        assert!((spread.stdev / sigma - 1.0).abs() < 0.02, "{spread:?}");
        let mean = sizes.iter().sum::<u64>() as f64 / files as f64;
        assert!((mean / 126_912.6 - 1.0).abs() < 0.01, "{mean}");
        sizes.sort_unstable();
        let middle = sizes[files as usize / 2] as f64;
        assert!((middle / median - 1.0).abs() < 0.01, "{middle}");
        assert_eq!(Sizes::lognormal(1000.0, 0.0, 5), Sizes::dlio(1000.0, 0.0, 5));
    }
}
