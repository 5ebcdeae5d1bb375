//! Which samples are in which batch.

use super::random::below;
use super::DataError;
use crate::nn::Stream;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What decides which samples are in which batch of which rank.
///
/// An epoch is a permutation of the samples, a function of seed and epoch (or their own order). With `ranks` ranks and
/// `batch_size` samples for each, step `s` has the `s`-th `ranks * batch_size` of them, the same as with one rank and larger
/// batches; rank 0 has the first of these, and so on.
///
/// What remains at the end, fewer than `ranks * batch_size` samples, is left out of the epoch with `drop_last`. Otherwise it is a
/// last step of smaller batches, whose sizes differ by at most one. Should it not be one for each rank, the last step has one for
/// each, and the step before it so many fewer. So every sample is in one batch of one rank, every rank has the same number of
/// batches, and none of them is empty. This cannot be done for fewer samples than ranks, and for batches of one if their number is
/// no multiple of the ranks: that is a [`DataError::Options`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Samples in the data set.
    pub samples: usize,
    /// Samples in a batch of one rank.
    pub batch_size: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Whether what remains at the end is left out.
    pub drop_last: bool,
    /// Whether the samples are shuffled.
    pub shuffle: bool,
    /// The seed of shuffling and augmentation.
    pub seed: u64,
}

impl Order {
    /// Number of batches that each rank has in an epoch.
    ///
    /// # Errors
    /// [`DataError::Options`] if the samples cannot be shared out.
    pub fn batches(&self) -> Result<usize, DataError> {
        let wrong = |what: String| Err(DataError::Options { what });
        let &Order { samples, batch_size, ranks, .. } = self;
        if batch_size == 0 || ranks == 0 {
            return wrong("there is no batch of 0 samples, or for 0 ranks; take 1 or more".into());
        }
        if samples == 0 {
            return wrong("the data set has no samples".into());
        }
        let step = batch_size.saturating_mul(ranks);
        if self.drop_last {
            return match samples / step {
                0 => wrong(format!(
                    "{samples} samples are less than one step of {ranks} x {batch_size}, and `drop_last` leaves them out; take \
                     smaller batches, or keep the last one"
                )),
                batches => Ok(batches),
            };
        }
        let batches = samples.div_ceil(step);
        if batches.saturating_mul(ranks) > samples {
            return wrong(format!(
                "{samples} samples in batches of {batch_size} leave some of {ranks} ranks without a sample in the last step; take \
                 batches of 2 or more and no more ranks than samples, or `drop_last`"
            ));
        }
        Ok(batches)
    }

    /// The places, in the epoch's permutation, of the samples of one step, of all ranks. `batches` is as above.
    pub(super) fn step(&self, batch: usize, batches: usize) -> Range<usize> {
        let step = self.batch_size.saturating_mul(self.ranks);
        let remainder = self.samples % step;
        // Where a step would begin, but that the last one has a sample for each rank.
        let begin = |batch: usize| match batch {
            batch if batch < batches => match !self.drop_last && batch + 1 == batches && remainder != 0 {
                true => (batch * step).min(self.samples - self.ranks),
                false => batch * step,
            },
            _ if self.drop_last => batches * step,
            _ => self.samples,
        };
        begin(batch)..begin(batch + 1)
    }

    /// The part of a step's places that one rank has.
    pub(super) fn share(&self, step: &Range<usize>, rank: usize) -> Range<usize> {
        let (each, more) = (step.len() / self.ranks, step.len() % self.ranks);
        let begin = step.start + rank * each + rank.min(more);
        begin..begin + each + usize::from(rank < more)
    }

    /// The samples in the order of an epoch: Fisher and Yates' shuffle.
    pub(super) fn permutation(&self, epoch: u64) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.samples).collect();
        if self.shuffle {
            let stream = Stream::new(self.seed, epoch, "order of the samples");
            for last in (1..all.len()).rev() {
                all.swap(last, below(stream.bits(last as u64), last + 1));
            }
        }
        all
    }

    /// What another one has different, as words.
    pub(super) fn differences(&self, other: &Order) -> String {
        let mut all = Vec::new();
        let mut compare = |what: &str, a: u64, b: u64| {
            if a != b {
                all.push(format!("{what}: {a} then, {b} now"));
            }
        };
        compare("samples", self.samples as u64, other.samples as u64);
        compare("batch size", self.batch_size as u64, other.batch_size as u64);
        compare("ranks", self.ranks as u64, other.ranks as u64);
        compare("drop_last", self.drop_last.into(), other.drop_last.into());
        compare("shuffle", self.shuffle.into(), other.shuffle.into());
        compare("seed", self.seed, other.seed);
        all.join("; ")
    }
}
