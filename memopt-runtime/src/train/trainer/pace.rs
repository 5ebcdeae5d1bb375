//! Samples by time, and peaks by step.

use crate::memory::{is_counting, Scope};
use crate::Result;
use std::time::{Duration, Instant};

/// The stretch since the last step.
pub(super) struct Pace {
    since: Instant,
    /// `None`: bytes are not counted.
    scope: Option<Scope>,
    samples: u64,
    elapsed: Duration,
    peak: Option<usize>,
}

impl Pace {
    /// # Errors
    /// If bytes are counted, and in too many scopes.
    pub fn begin() -> Result<Self> {
        Ok(Pace { since: Instant::now(), scope: scope()?, samples: 0, elapsed: Duration::ZERO, peak: None })
    }

    /// A step is done: its samples by the time since the one before, and the peak since then.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    pub fn step(&mut self, samples: u64) -> Result<(f64, Option<usize>)> {
        let elapsed = self.since.elapsed();
        let peak = self.scope.take().map(|scope| scope.peak());
        self.peak = self.peak.max(peak);
        self.samples += samples;
        self.elapsed += elapsed;
        self.go_on()?;
        Ok((by_time(samples, elapsed), peak))
    }

    /// What was done meanwhile is not of the next step.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    pub fn go_on(&mut self) -> Result<()> {
        self.scope = None;
        self.scope = scope()?;
        self.since = Instant::now();
        Ok(())
    }

    /// Samples of all steps by their time, and the largest peak.
    pub fn total(&self) -> (f64, Option<usize>) {
        (by_time(self.samples, self.elapsed), self.peak)
    }
}

fn scope() -> Result<Option<Scope>> {
    match is_counting() {
        true => Ok(Some(Scope::enter("a step of the trainer")?)),
        false => Ok(None),
    }
}

/// 0 where there was no time.
fn by_time(samples: u64, elapsed: Duration) -> f64 {
    match elapsed.as_secs_f64() {
        seconds if seconds > 0. => samples as f64 / seconds,
        _ => 0.,
    }
}
