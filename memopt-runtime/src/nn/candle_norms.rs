//! The norms of candle-nn in models of ours: computed by our own functions, over their variables.
//!
//! Candle's own layer norm has no backward on a contiguous input, and its batch norm moves the running statistics whenever
//! it is run. The formulas are the same; so are they under every plan, chunks included.

use super::input::wrong;
use super::{BatchNorm, LayerNorm};
use crate::autograd::Gradient;
use crate::module::{Checkpointable, Context, Footprint, Incoming, NormStatistics, NormSums, Part, Signal};
use crate::module::{Weight, WeightGradient, WindowNorm, Work};
use crate::parameters::removes_mean;
use crate::Result;
use candle_core::{CpuStorage, Tensor};
use std::ops::Range;

/// Over the last dimension, with or without a bias, and with or without `remove_mean`.
#[diagnostic::do_not_recommend]
impl Checkpointable for candle_nn::LayerNorm {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let &[size] = self.weight().dims() else {
            let what = format!("a weight [hidden] expected, {:?} given", self.weight().dims());
            return Err(wrong(context.path(), what));
        };
        let affine = Some((self.weight().clone(), self.bias().cloned()));
        let removes_mean = self.remove_mean();
        LayerNorm { affine, normalized: vec![size], eps: self.eps(), removes_mean }.forward(x, context)
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        (self.weight().dims() == x.dims.last().map(std::slice::from_ref)?).then_some(())?;
        let (forward, backward) = (Work::moving(3 * x.bytes()), Work::moving(5 * x.bytes()));
        Some(Footprint { forward, backward, ..Footprint::elementwise(x).keeping_input() })
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

/// Names the norm in errors of its pieces, which do not know its path.
const PART: &str = "batch norm";

/// Our norm over the same variables.
fn ours(part: &str, norm: &candle_nn::BatchNorm) -> Result<BatchNorm> {
    match removes_mean(norm) {
        Some(true) => BatchNorm::of_candle(norm),
        Some(false) => {
            // In training it would divide by the root mean square, in evaluation it subtracts a mean all the same.
            let what =
                "`candle_nn::BatchNorm` without `remove_mean` is another function in training than in \
                        evaluation; use `memopt::nn::BatchNorm`";
            Err(wrong(part, what))
        }
        None => {
            let what =
                "this version of `candle_nn::BatchNorm` does not tell whether it removes the mean; use \
                        `memopt::nn::BatchNorm`";
            Err(wrong(part, what))
        }
    }
}

/// Over the whole window, `[T, N, C, ...]`. Its running statistics move once for each training forward, in the first pass.
/// Without `remove_mean` it is refused.
#[diagnostic::do_not_recommend]
impl Checkpointable for candle_nn::BatchNorm {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        ours(context.path(), self)?.forward(x, context)
    }

    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        ours(PART, self)?.for_channels(channels)
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        ours(PART, self).ok()?.footprint(x)
    }

    fn window_norm(&self) -> Option<&dyn WindowNorm> {
        Some(self)
    }

    fn is_time_chunkable(&self) -> bool {
        false
    }
}

impl WindowNorm for candle_nn::BatchNorm {
    fn channels(&self) -> usize {
        self.running_mean().elem_count()
    }

    fn add_statistics(&self, statistics: &mut NormStatistics, z: &Tensor) -> Result<()> {
        ours(PART, self)?.add_statistics(statistics, z)
    }

    fn normalize(&self, z: CpuStorage, dims: &[usize], statistics: &NormStatistics) -> Result<CpuStorage> {
        ours(PART, self)?.normalize(z, dims, statistics)
    }

    fn add_sums(
        &self,
        sums: &mut NormSums,
        z: &Tensor,
        dy: &CpuStorage,
        statistics: &NormStatistics,
    ) -> Result<()> {
        ours(PART, self)?.add_sums(sums, z, dy, statistics)
    }

    fn input_gradient(
        &self,
        z: &Tensor,
        dy: CpuStorage,
        statistics: &NormStatistics,
        sums: &NormSums,
    ) -> Result<CpuStorage> {
        ours(PART, self)?.input_gradient(z, dy, statistics, sums)
    }

    fn weights(&self, context: &Context) -> Vec<Weight> {
        let Some((weight, bias)) = self.weight_and_bias() else { return Vec::new() };
        vec![context.weight("weight", weight), context.weight("bias", bias)]
    }

    fn parameter_gradients(
        &self,
        sums: &[NormSums],
        gradients: &[WeightGradient],
    ) -> Result<Vec<Option<Gradient>>> {
        ours(PART, self)?.parameter_gradients(sums, gradients)
    }

    fn move_running(&self, statistics: &NormStatistics) -> Result<()> {
        ours(PART, self)?.move_running(statistics)
    }

    fn running_statistics(&self) -> Result<NormStatistics> {
        ours(PART, self)?.running_statistics()
    }
}
