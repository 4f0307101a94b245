//! The length of an emulated step: a draw from the workload's distribution, as a pure function of (seed, epoch, rank,
//! step). The same plan emulates the same accelerators, independent of threads.

use rand_core::{Infallible, TryRng};
use rand_distr::{Distribution, Exp, Gamma, Normal, Poisson, Uniform};

use crate::order::{mix, scramble};
use crate::spec::Time;
use crate::units::Nanos;

/// The random words of one draw.
struct RandomStream {
    state: u64,
}

impl RandomStream {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.state)
    }
}

impl TryRng for RandomStream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
        Ok(())
    }
}

/// The time of step `step` of `rank`. A negative draw is mirrored, as in DLIO.
pub fn draw(time: &Time, seed: u64, epoch: u64, rank: u64, step: u64) -> Nanos {
    if let Time::Constant(seconds) = time {
        return Nanos::from_seconds(*seconds);
    }
    let mut stream = RandomStream { state: mix(mix(mix(seed, epoch), rank), step) };
    // The spec validates the parameters, so a distribution that cannot be built does not occur; it would fall back to
    // its mean.
    let seconds = match *time {
        Time::Constant(seconds) => seconds,
        Time::Normal { mean, stdev } => Normal::new(mean, stdev).map_or(mean, |d| d.sample(&mut stream)),
        Time::Uniform { min, max } => Uniform::new_inclusive(min, max).map_or(min, |d| d.sample(&mut stream)),
        Time::Gamma { shape, scale } => {
            Gamma::new(shape, scale).map_or(shape * scale, |d| d.sample(&mut stream))
        }
        Time::Exponential { scale } => Exp::new(scale.recip()).map_or(scale, |d| d.sample(&mut stream)),
        Time::Poisson { lam } => Poisson::new(lam).map_or(lam, |d| d.sample(&mut stream)),
    };
    Nanos::from_seconds(seconds.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_specified_mean_and_spread() {
        let cases = [
            (Time::Constant(0.25), 0.25, 0.0),
            (Time::Normal { mean: 1.0, stdev: 0.1 }, 1.0, 0.1),
            (Time::Uniform { min: 1.0, max: 3.0 }, 2.0, (1.0f64 / 3.0).sqrt()),
            (Time::Gamma { shape: 4.0, scale: 0.5 }, 2.0, 1.0),
            (Time::Exponential { scale: 0.5 }, 0.5, 0.5),
            (Time::Poisson { lam: 3.0 }, 3.0, 3.0f64.sqrt()),
        ];
        for (time, mean, stdev) in cases {
            let draws: Vec<f64> = (0..20_000).map(|step| draw(&time, 123, 1, 0, step).seconds()).collect();
            let seen = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|draw| (draw - seen).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((seen - mean).abs() < 0.02 * mean + 1e-9, "{time:?}: mean {seen}");
            assert!(
                (variance.sqrt() - stdev).abs() < 0.05 * stdev + 1e-9,
                "{time:?}: stdev {}",
                variance.sqrt()
            );
            assert!((time.mean() - mean).abs() < 1e-12);
        }
    }

    #[test]
    fn a_draw_depends_on_all_coordinates_and_nothing_else() {
        let time = Time::Normal { mean: 1.0, stdev: 0.1 };
        let base = draw(&time, 1, 1, 1, 1);
        assert_eq!(base, draw(&time, 1, 1, 1, 1));
        for other in [
            draw(&time, 2, 1, 1, 1),
            draw(&time, 1, 2, 1, 1),
            draw(&time, 1, 1, 2, 1),
            draw(&time, 1, 1, 1, 2),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn negative_draws_are_mirrored() {
        let time = Time::Normal { mean: 0.0, stdev: 1.0 };
        assert!((0..100).all(|step| draw(&time, 1, 1, 0, step) > Nanos::ZERO));
    }
}
