//! The states at the borders, computed again when they are needed: they are held during the segment's own backward only.

use super::backward::Backward;
use super::first_pass::normalized;
use crate::checkpoint::leaves::run_leaves;
use crate::checkpoint::replay::{in_recompute, InputSteps};
use crate::module::{NormStatistics, States};
use crate::storage;
use crate::Result;
use candle_core::Tensor;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// The states before each chunk.
#[derive(Default)]
pub(super) struct Borders {
    /// Of the layers before the norm.
    pub(super) before: Vec<States>,
    /// Of those behind it, or of all if there is none.
    pub(super) after: Vec<States>,
}

impl Backward {
    /// The states at the borders of ranges, where all layers go by the graph: one pass over all ranges but the last.
    pub(super) fn borders(
        &self,
        x: &InputSteps,
        ranges: &[Range<usize>],
        statistics: Option<&NormStatistics>,
    ) -> Result<Borders> {
        let twin = self.chunked.detached();
        let behind = Arc::new(Mutex::new(States::default()));
        let mut after = Vec::with_capacity(ranges.len());
        let before = self.sweep(
            x,
            ranges,
            self.ran.after_has_states,
            || after.push(behind.lock().clone()),
            |index, z, range| {
                let n = match (self.chunked.norm(), statistics) {
                    (Some((_, norm)), Some(statistics)) => {
                        normalized(norm, storage::owned(&z)?, z.dims(), statistics)?
                    }
                    _ => z,
                };
                let mut context = self.context.chunk(range.start, behind.clone());
                let y = in_recompute(&self.name, || run_leaves(twin.after(), n, &mut context))?;
                self.check_output(index, &y)
            },
        )?;
        Ok(Borders { before, after })
    }

    /// Goes through the ranges, first to last, in pieces: `at_border` is called at the beginning of each, and `then` for what
    /// goes into the norm (or into all layers, if there is none) in all pieces of all but the last, with the index of the
    /// range, if it is wanted. Gives the states of the layers before the norm at the beginning of each range.
    pub(super) fn sweep(
        &self,
        x: &InputSteps,
        ranges: &[Range<usize>],
        is_wanted: bool,
        mut at_border: impl FnMut(),
        mut then: impl FnMut(usize, Tensor, &Range<usize>) -> Result<()>,
    ) -> Result<Vec<States>> {
        let twin = self.chunked.detached();
        let states = Arc::new(Mutex::new(States::default()));
        let mut before = Vec::with_capacity(ranges.len());
        for (index, range) in ranges.iter().enumerate() {
            before.push(states.lock().clone());
            at_border();
            let is_last = index + 1 == ranges.len();
            if is_last || !(is_wanted || self.ran.before_has_states) {
                continue;
            }
            for piece in self.chunked.pieces(range, x.steps()) {
                let z = self.before_norm(twin.before(), x.at(&piece)?, &piece, states.clone())?;
                if is_wanted {
                    then(index, z, &piece)?;
                }
            }
        }
        Ok(before)
    }
}
