//! Learning rates.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// A learning rate as a function of the number of steps made: nothing to step, nothing to save.
///
/// ```
/// use memopt_runtime::train::Schedule;
///
/// let schedule = Schedule::cosine(1e-3, 1e-5, 90)?.after_warm_up(10, 0.1)?;
/// assert_eq!(schedule.at(0), 1e-4);
/// assert_eq!(schedule.at(10), 1e-3);
/// assert!((schedule.at(55) - (1e-3 + 1e-5) / 2.).abs() < 1e-12);
/// assert_eq!(schedule.at(1000), 1e-5);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Kind", into = "Kind")]
pub struct Schedule(Kind);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Constant { rate: f64 },
    Cosine { rate: f64, minimum: f64, steps: u64 },
    Step { rate: f64, every: u64, factor: f64 },
    MultiStep { rate: f64, milestones: Vec<u64>, factor: f64 },
    WarmUp { steps: u64, from: f64, then: Box<Schedule> },
}

impl Schedule {
    /// Always `rate`.
    ///
    /// # Errors
    /// If the rate is not finite, or below 0.
    pub fn constant(rate: f64) -> Result<Self> {
        Kind::Constant { rate }.try_into()
    }

    /// Half a cosine from `rate` down to `minimum` in so many steps, where it stays (Loshchilov and Hutter 2017):
    ///
    /// ```text
    /// minimum + (rate - minimum) (1 + cos(pi step / steps)) / 2
    /// ```
    ///
    /// # Errors
    /// If a rate is not finite or below 0, `minimum` is above `rate`, or `steps` is 0.
    pub fn cosine(rate: f64, minimum: f64, steps: u64) -> Result<Self> {
        Kind::Cosine { rate, minimum, steps }.try_into()
    }

    /// `rate factor^floor(step / every)`
    ///
    /// # Errors
    /// If the rate or the factor is not finite or below 0, or `every` is 0.
    pub fn step(rate: f64, every: u64, factor: f64) -> Result<Self> {
        Kind::Step { rate, every, factor }.try_into()
    }

    /// `rate factor^n` behind the n-th milestone; from the step on that is the milestone.
    ///
    /// # Errors
    /// If the rate or the factor is not finite or below 0, or the milestones do not ascend.
    pub fn multi_step(rate: f64, milestones: impl Into<Vec<u64>>, factor: f64) -> Result<Self> {
        Kind::MultiStep { rate, milestones: milestones.into(), factor }.try_into()
    }

    /// This schedule behind a linear warm-up of so many steps, from `from` times its first rate:
    ///
    /// ```text
    /// at(0) (from + (1 - from) step / steps)     step < steps
    /// at(step - steps)                           later
    /// ```
    ///
    /// # Errors
    /// If `from` is not in [0, 1].
    pub fn after_warm_up(self, steps: u64, from: f64) -> Result<Self> {
        Kind::WarmUp { steps, from, then: Box::new(self) }.try_into()
    }

    /// The learning rate of the step behind so many.
    pub fn at(&self, step: u64) -> f64 {
        match &self.0 {
            Kind::Constant { rate } => *rate,
            Kind::Cosine { minimum, steps, .. } if step >= *steps => *minimum,
            Kind::Cosine { rate, minimum, steps } => {
                // The same bits on every platform.
                let share = (1. + libm::cos(PI * step as f64 / *steps as f64)) / 2.;
                minimum + (rate - minimum) * share
            }
            Kind::Step { rate, every, factor } => rate * libm::pow(*factor, (step / every) as f64),
            Kind::MultiStep { rate, milestones, factor } => {
                let passed = milestones.iter().filter(|&&milestone| milestone <= step).count();
                rate * libm::pow(*factor, passed as f64)
            }
            Kind::WarmUp { steps, from, then } if step < *steps => {
                then.at(0) * (from + (1. - from) * (step as f64 / *steps as f64))
            }
            Kind::WarmUp { steps, then, .. } => then.at(step - steps),
        }
    }
}

impl TryFrom<Kind> for Schedule {
    type Error = Error;

    fn try_from(kind: Kind) -> Result<Self> {
        let number = |name: &str, value: f64| match value.is_finite() && value >= 0. {
            true => Ok(()),
            false => Err(wrong(format!("the {name} is {value}; a finite number of at least 0 expected"))),
        };
        match &kind {
            Kind::Constant { rate } => number("rate", *rate)?,
            Kind::Cosine { rate, minimum, steps } => {
                number("rate", *rate)?;
                number("minimum", *minimum)?;
                if minimum > rate {
                    return Err(wrong(format!("the minimum, {minimum}, is above the rate, {rate}")));
                }
                if *steps == 0 {
                    return Err(wrong("a cosine of 0 steps; at least 1 expected".into()));
                }
            }
            Kind::Step { rate, every, factor } => {
                number("rate", *rate)?;
                number("factor", *factor)?;
                if *every == 0 {
                    return Err(wrong("a step every 0 steps; at least 1 expected".into()));
                }
            }
            Kind::MultiStep { rate, milestones, factor } => {
                number("rate", *rate)?;
                number("factor", *factor)?;
                if milestones.windows(2).any(|pair| pair[0] >= pair[1]) {
                    return Err(wrong(format!("the milestones {milestones:?} do not ascend")));
                }
            }
            Kind::WarmUp { from, .. } => {
                if !(0. ..=1.).contains(from) {
                    return Err(wrong(format!(
                        "the warm-up is from {from} of the rate; a number in [0, 1] expected"
                    )));
                }
            }
        }
        Ok(Schedule(kind))
    }
}

impl From<Schedule> for Kind {
    fn from(schedule: Schedule) -> Self {
        schedule.0
    }
}

fn wrong(what: String) -> Error {
    Error::Training { part: "schedule".into(), what }
}

/// The samples of a step: `micro_batch steps ranks`.
pub fn effective_batch(micro_batch: usize, steps: usize, ranks: usize) -> usize {
    micro_batch.saturating_mul(steps).saturating_mul(ranks)
}

/// How a learning rate that was found for one batch is scaled to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateScaling {
    /// `rate batch / base_batch` (Goyal et al. 2017).
    Linear,
    /// `rate sqrt(batch / base_batch)`, which is more careful.
    SquareRoot,
}

impl RateScaling {
    /// The base where nothing better is known: a rate of 1e-4 at a batch of 256.
    pub const BASE: (f64, usize) = (1e-4, 256);

    /// The rate for a batch of so many samples, where `base` is a rate and the batch that it was found for.
    ///
    /// ```
    /// use memopt_runtime::train::{effective_batch, RateScaling};
    ///
    /// let batch = effective_batch(8, 4, 2); // micro-batches of 8, 4 a step, 2 processes
    /// assert_eq!(RateScaling::Linear.rate(RateScaling::BASE, batch)?, 1e-4 * 64. / 256.);
    /// assert_eq!(RateScaling::SquareRoot.rate(RateScaling::BASE, batch)?, 1e-4 * 0.5);
    /// # Ok::<(), memopt_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the rate is not finite or below 0, or a batch is 0.
    pub fn rate(self, base: (f64, usize), batch: usize) -> Result<f64> {
        let (rate, base_batch) = base;
        if !(rate.is_finite() && rate >= 0. && base_batch > 0 && batch > 0) {
            let what = format!(
                "a rate of {rate} for a batch of {base_batch} cannot be scaled to a batch of {batch}"
            );
            return Err(wrong(what));
        }
        let ratio = batch as f64 / base_batch as f64;
        Ok(match self {
            RateScaling::Linear => rate * ratio,
            RateScaling::SquareRoot => rate * ratio.sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_milestone_counts_from_its_step_on() {
        let schedule = Schedule::multi_step(1., [2, 5], 0.5).unwrap();
        assert_eq!(
            (0..7).map(|step| schedule.at(step)).collect::<Vec<_>>(),
            [1., 1., 0.5, 0.5, 0.5, 0.25, 0.25]
        );
    }

    #[test]
    fn a_warm_up_stands_in_front_of_any() {
        let schedule = Schedule::step(1., 2, 0.5).unwrap().after_warm_up(4, 0.).unwrap();
        assert_eq!(
            (0..8).map(|step| schedule.at(step)).collect::<Vec<_>>(),
            [0., 0.25, 0.5, 0.75, 1., 1., 0.5, 0.5]
        );
        assert_eq!(Schedule::constant(2.).unwrap().after_warm_up(0, 0.).unwrap().at(0), 2.);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for schedule in [
            Schedule::constant(f64::NAN),
            Schedule::constant(-1.),
            Schedule::cosine(1., 2., 10),
            Schedule::cosine(1., 0., 0),
            Schedule::step(1., 0, 0.5),
            Schedule::step(1., 1, f64::INFINITY),
            Schedule::multi_step(1., [3, 3], 0.5),
            Schedule::constant(1.).unwrap().after_warm_up(3, 1.5),
        ] {
            assert!(matches!(schedule, Err(Error::Training { .. })), "{schedule:?}");
        }
        assert!(RateScaling::Linear.rate((1e-4, 0), 1).is_err());
        assert!(RateScaling::SquareRoot.rate(RateScaling::BASE, 0).is_err());
        assert_eq!(effective_batch(usize::MAX, 2, 2), usize::MAX);
    }

    #[test]
    fn it_is_written_and_read_and_checked_when_read() {
        let schedule = Schedule::cosine(0.1, 0.01, 7).unwrap().after_warm_up(3, 0.5).unwrap();
        let text = serde_json::to_string(&schedule).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
        let error = serde_json::from_str::<Schedule>(r#"{"constant":{"rate":-1.0}}"#).unwrap_err();
        assert!(error.to_string().contains("the rate is -1"), "{error}");
    }
}
