//! What a trainer says.

use crate::snapshot::Skipped;
use crate::train::{Step, Totals};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What an evaluation gives: numbers by name.
pub type Metrics = BTreeMap<String, f64>;

/// A step of a [`Trainer`](super::Trainer), skipped ones included.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Micro-batches of the epoch so far, on this rank.
    pub micro_batch: u64,
    /// Micro-batches of an epoch, on this rank.
    pub micro_batches_of_epoch: u64,
    /// The step; its loss is unscaled.
    #[serde(flatten)]
    pub step: Step,
    /// Samples of all ranks by the time since the step before, loading included.
    pub samples_per_second: f64,
    /// The most bytes that were live in the process since the step before; `None`: they are not counted
    /// ([`CountingAllocator`](crate::memory::CountingAllocator)).
    pub peak_bytes: Option<usize>,
}

/// An evaluation at the end of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Steps made so far.
    pub number: u64,
    /// What was found.
    pub metrics: Metrics,
}

/// What [`Trainer::resume`](super::Trainer::resume) did.
#[derive(Debug)]
pub struct Resumed {
    /// The file.
    pub path: PathBuf,
    /// Steps made by then, and skipped.
    pub totals: Totals,
    /// The epoch that is gone on with, from 0.
    pub epoch: u64,
    /// Later snapshots that are damaged.
    pub skipped: Vec<Skipped>,
}

/// One line, and one for each damaged file.
impl fmt::Display for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resumed { path, totals, epoch, skipped } = self;
        write!(f, "resumed from {} at step {}, in epoch {epoch}", path.display(), totals.steps)?;
        skipped.iter().try_for_each(|skipped| write!(f, "\n  passed over: {}", skipped.why))
    }
}

/// What [`Trainer::fit`](super::Trainer::fit) did.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingSummary {
    /// Steps made and skipped, those before a resumption included.
    pub totals: Totals,
    /// The evaluations of this call.
    pub evaluations: Vec<Evaluation>,
    /// How long this call took.
    pub elapsed: Duration,
    /// Samples of all ranks by the time that their steps took, loading included, evaluation and saving not.
    pub samples_per_second: f64,
    /// The largest peak of a step; `None`: bytes are not counted.
    pub peak_bytes: Option<usize>,
    /// The last snapshot; `None`: none was saved, or another rank did.
    pub saved: Option<PathBuf>,
}
