//! The dynamic loss scale.

use super::state::{count, number, Loading};
use crate::{Error, Result};
use candle_core::Tensor;
use serde::{Deserialize, Serialize};

/// The numbers of a [`Scaler`]; the defaults are PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScalerConfig {
    /// The scale at the beginning; 65536.
    pub initial_scale: f64,
    /// What the scale is multiplied by after `interval` good steps in a row; 2.
    pub growth: f64,
    /// What the scale is multiplied by after a step whose gradients were not finite; 0.5.
    pub backoff: f64,
    /// Good steps in a row until the scale grows; 2000.
    pub interval: u64,
}

impl Default for ScalerConfig {
    fn default() -> Self {
        ScalerConfig { initial_scale: 65536., growth: 2., backoff: 0.5, interval: 2000 }
    }
}

/// The scale that losses are multiplied by before backward, so that small gradients do not vanish in f16.
///
/// ```text
/// the gradients are finite      after `interval` of them in a row: scale = growth scale
/// they are not                  the step is skipped, scale = backoff scale
/// ```
///
/// The scale stays within f32's normal numbers. Powers of two, as by default, change no bit of a gradient that neither over-
/// nor underflows.
///
/// ```
/// use memopt_runtime::train::{Scaler, ScalerConfig};
///
/// let mut scaler = Scaler::new(ScalerConfig { interval: 2, ..Default::default() })?;
/// scaler.update(false);
/// assert_eq!(scaler.scale(), 32768.);
/// scaler.update(true);
/// scaler.update(true);
/// assert_eq!(scaler.scale(), 65536.);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Scaler {
    config: ScalerConfig,
    scale: f64,
    good_steps: u64,
}

/// What the scale stays between.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;
const LARGEST: f64 = f32::MAX as f64;

impl Scaler {
    /// A scale at its beginning.
    ///
    /// # Errors
    /// If a number makes no sense.
    pub fn new(config: ScalerConfig) -> Result<Self> {
        let ScalerConfig { initial_scale, growth, backoff, interval } = config;
        let wrong = |what| Err(Error::Training { part: "loss scale".into(), what });
        if !(SMALLEST..=LARGEST).contains(&initial_scale) {
            return wrong(format!("it begins at {initial_scale}; a positive number of f32's range expected"));
        }
        if !(growth.is_finite() && growth >= 1. && backoff > 0. && backoff < 1.) {
            let what = format!("a finite growth of at least 1 and a backoff in (0, 1) expected, {growth} and {backoff} given");
            return wrong(what);
        }
        if interval == 0 {
            return wrong("it grows after 0 good steps; at least 1 expected".into());
        }
        Ok(Scaler { config, scale: initial_scale, good_steps: 0 })
    }

    /// What the next loss is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Its numbers.
    pub fn config(&self) -> ScalerConfig {
        self.config
    }

    /// Moves the scale behind a step, by whether the gradients were finite.
    pub fn update(&mut self, finite: bool) {
        if !finite {
            self.scale = (self.scale * self.config.backoff).max(SMALLEST);
            self.good_steps = 0;
            return;
        }
        self.good_steps += 1;
        if self.good_steps >= self.config.interval {
            let grown = self.scale * self.config.growth;
            self.scale = if grown <= LARGEST { grown } else { self.scale };
            self.good_steps = 0;
        }
    }

    /// `scale` and `good_steps`, as named tensors.
    ///
    /// # Errors
    /// Those of Candle.
    pub fn state(&self) -> Result<Vec<(String, Tensor)>> {
        Ok(vec![("scale".into(), number(self.scale)?), ("good_steps".into(), count(self.good_steps)?)])
    }

    /// Goes on where another scale was; if it fails, nothing has changed.
    ///
    /// # Errors
    /// If a tensor is missing, is foreign, or is no such number.
    pub fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let mut loading = Loading::new("the loss scale", state)?;
        let (scale, good_steps) = (loading.take_number("scale")?, loading.take_count("good_steps")?);
        if !(SMALLEST..=LARGEST).contains(&scale) {
            return Err(
                loading.wrong("scale", format!("is {scale}; a positive number of f32's range expected"))
            );
        }
        loading.finish()?;
        (self.scale, self.good_steps) = (scale, good_steps);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_within_f32() {
        let config = ScalerConfig { interval: 1, growth: 1e30, backoff: 1e-30, ..Default::default() };
        let mut scaler = Scaler::new(config).unwrap();
        (0..9).for_each(|_| scaler.update(true));
        assert_eq!(scaler.scale(), 65536. * 1e30);
        (0..9).for_each(|_| scaler.update(false));
        assert_eq!(scaler.scale(), SMALLEST);
    }

    #[test]
    fn a_bad_step_starts_the_count_anew_and_a_state_goes_on() {
        let mut scaler = Scaler::new(ScalerConfig { interval: 3, ..Default::default() }).unwrap();
        for finite in [true, true, false, true, true] {
            scaler.update(finite);
        }
        assert_eq!(scaler.scale(), 32768.);
        let mut other = Scaler::new(scaler.config()).unwrap();
        other.load_state(&scaler.state().unwrap()).unwrap();
        assert_eq!(other, scaler);
        other.update(true);
        assert_eq!(other.scale(), 65536.);
        let bad = vec![("scale".into(), number(0.).unwrap()), ("good_steps".into(), count(0).unwrap())];
        assert!(matches!(other.load_state(&bad), Err(Error::StateTensor { .. })));
        assert_eq!(other.scale(), 65536.);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let good = ScalerConfig::default();
        for bad in [
            ScalerConfig { initial_scale: 0., ..good },
            ScalerConfig { initial_scale: f64::NAN, ..good },
            ScalerConfig { growth: 0.5, ..good },
            ScalerConfig { backoff: 1., ..good },
            ScalerConfig { interval: 0, ..good },
        ] {
            assert!(matches!(Scaler::new(bad), Err(Error::Training { .. })), "{bad:?}");
        }
    }
}
