//! What goes into the layer with weights, as a recompute has it.

use crate::autograd::Gradient;
use crate::checkpoint::norm_neurons::lost;
use crate::checkpoint::replay::KeptInput;
use crate::checkpoint::window::{GivingWay, WindowBuffer};
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

    /// The layer's backward from the gradient of its output, `dz` of these dimensions: the gradients of the weights are
    /// added up, and that of the features is given, if it is wanted.
    pub(super) fn back(
        &self,
        layer: &dyn ChannelLayer,
        (dz, dims): (CpuStorage, &[usize]),
        wants_input: bool,
        context: &Context,
    ) -> Result<Option<Gradient>> {
        if let [all] = self.ranges.as_slice() {
            return layer.back(&self.at(all)?, dz, wants_input, context);
        }
        let mut dx = GivingWay::new(dz, dims);
        for range in self.ranges.iter().rev() {
            let part = layer.back(&self.at(range)?, dx.part(range), wants_input, context)?;
            if let Some(part) = part {
                dx.write(range.start, &part.into_tensor())?;
            }
        }
        Ok(dx.finish())
    }
}
