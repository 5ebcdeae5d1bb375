//! What goes into the layer with weights, as a recompute has it.

use super::sliced::lost;
use crate::autograd::Gradient;
use crate::checkpoint::replay::KeptInput;
use crate::checkpoint::window::WindowBuffer;
use crate::module::{ChannelLayer, Context};
use crate::storage;
use crate::Result;
use candle_core::{CpuStorage, Tensor};
use std::ops::Range;

/// What goes into the layer with weights: all at once, or some time steps at a time, so that a large input need not
/// be unpacked as a whole.
pub(super) struct Features<'a> {
    of: FeaturesOf<'a>,
    /// The time steps that are done together.
    ranges: Vec<Range<usize>>,
}

enum FeaturesOf<'a> {
    Whole(Tensor),
    /// The input itself.
    Input(&'a KeptInput),
}

impl<'a> Features<'a> {
    pub(super) fn whole(features: Tensor) -> Self {
        let steps = features.dims().first().copied().unwrap_or_default();
        Features { of: FeaturesOf::Whole(features), ranges: std::iter::once(0..steps).collect() }
    }

    /// The input itself, unpacked in these time steps.
    pub(super) fn in_steps(input: &'a KeptInput, ranges: Vec<Range<usize>>) -> Self {
        Features { of: FeaturesOf::Input(input), ranges }
    }

    fn at(&self, steps: &Range<usize>) -> Result<Tensor> {
        match &self.of {
            FeaturesOf::Whole(features) => Ok(features.clone()),
            FeaturesOf::Input(input) => input.unpack_steps(steps.clone())?.ok_or_else(lost),
        }
    }

    /// The layer's output over the window, and its dimensions.
    pub(super) fn through(&self, run: impl Fn(Tensor) -> Result<Tensor>) -> Result<(CpuStorage, Vec<usize>)> {
        if let [all] = self.ranges.as_slice() {
            let z = run(self.at(all)?)?;
            let dims = z.dims().to_vec();
            return Ok((storage::taken(z)?, dims));
        }
        let steps = self.ranges.last().map_or(0, |last| last.end);
        let mut whole: Option<WindowBuffer> = None;
        for range in &self.ranges {
            let z = run(self.at(range)?)?;
            match &mut whole {
                Some(whole) => whole.push(&z)?,
                None => whole.insert(WindowBuffer::like(&z, steps)?).push(&z)?,
            }
        }
        let whole = whole.ok_or_else(lost)?;
        let dims = whole.shape().dims().to_vec();
        Ok((whole.into_storage(), dims))
    }

    /// The layer's backward from the gradient of its output
    /// weights are added up, and the gradient of the
    /// features is given, if it is wanted.
    pub(super) fn back(
        &self,
        layer: &dyn ChannelLayer,
        mut dz: CpuStorage,
        wants_input: bool,
        context: &Context,
    ) -> Result<Option<Gradient>> {
        if let [all] = self.ranges.as_slice() {
            return layer.back(&self.at(all)?, dz, wants_input, context);
        }
        let steps = self.ranges.last().map_or(1, |last| last.end).max(1);
        let slot = storage::len(&dz) / steps;
        let mut dx: Option<(CpuStorage, Vec<usize>)> = None;
        for range in self.ranges.iter().rev() {
            let x = self.at(range)?;
            let of_step = x.elem_count() / range.len().max(1);
            let part = storage::part(&dz, range.start * slot..range.end * slot);
            let Some(part) = layer.back(&x, part, wants_input, context)? else { continue };
            let part = part.into_tensor();
            let dims = [&[steps], x.dims().get(1..).unwrap_or_default()].concat();
            // In the place of the gradient that it comes from, where it is not larger.
            let written = match (of_step <= slot, &mut dx) {
                (true, _) => {
                    let each = |(i, step): (usize, usize)| {
                        storage::write(&mut dz, step * slot, &part.narrow(0, i, 1)?.contiguous()?)
                    };
                    range.clone().enumerate().map(each).collect::<candle_core::Result<Vec<bool>>>()?
                }
                (false, Some((dx, _))) => vec![storage::write(dx, range.start * of_step, &part)?],
                (false, dx) => {
                    let zeros = Tensor::zeros(dims.as_slice(), part.dtype(), part.device())?;
                    let (whole, _) = dx.insert((storage::taken(zeros)?, dims));
                    vec![storage::write(whole, range.start * of_step, &part)?]
                }
            };
            if written.contains(&false) {
                return Err(lost());
            }
        }
        if !wants_input {
            return Ok(None);
        }
        match dx {
            Some((dx, dims)) => Ok(Some(Gradient::new(dx, dims))),
            None => {
                let first = self.at(&(0..1))?;
                let dims = [&[steps], first.dims().get(1..).unwrap_or_default()].concat();
                storage::compact(&mut dz, slot, first.elem_count());
                Ok(Some(Gradient::new(dz, dims)))
            }
        }
    }
}
