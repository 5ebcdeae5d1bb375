//! Where training stands.

use super::Order;
use serde::{Deserialize, Serialize};

/// The batch that is next: data, for a checkpoint. It is the same on every rank.
///
/// It comes from a [`Loader`](super::Loader) and goes back to one of the same [`Order`]; behind the last batch of an epoch it
/// is at the first of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    epoch: u64,
    batch: u64,
    order: Order,
}

impl Position {
    /// Of `batches` batches in an epoch.
    pub(super) fn new(order: Order, epoch: u64, batch: usize, batches: usize) -> Self {
        match batch < batches {
            true => Position { epoch, batch: batch as u64, order },
            false => Position { epoch: epoch.saturating_add(1), batch: 0, order },
        }
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The batch in the epoch, from 0.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// The order of samples that it is of.
    pub fn order(&self) -> Order {
        self.order
    }
}
