//! How a large batch is cut into micro-batches that fit.

use super::real_dtype;
use crate::module::Checkpointable;
use crate::parameters::distinct;
use crate::plan::Plan;
use crate::search::{Batches, Options, Sample};
use crate::{Error, Result};
use candle_core::Tensor;

/// Micro-batches of a step, and a plan for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// Samples of a micro-batch, M; the last one of a step has fewer where M does not divide the batch.
    pub micro_batch: usize,
    /// Micro-batches of a step, K.
    pub steps: usize,
    /// The fastest plan under which a step with such micro-batches fits.
    pub plan: Plan,
}

/// A micro-batch and a number of micro-batches for steps of `effective_batch` samples (of one process) that fit in `budget`
/// bytes, by the search's predictions; nothing larger than the sample is run.
///
/// One micro-batch if the whole batch fits. Else the buffers in which gradients are accumulated are resident too, and
/// among the micro-batches that fit, in this order:
///
/// 1. of at least 4 samples, which keeps the kernels busy,
/// 2. a power of two of them, which goes well with a number of processes,
/// 3. all of one size,
/// 4. the largest.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::nn::{init::seeded, Lif, Linear};
/// use memopt_runtime::search::Options;
/// use memopt_runtime::train::suggest;
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let net = (Linear::new(64, 64, Default::default(), vb)?, Lif::default());
/// let sample = Tensor::ones((8, 1, 64), DType::F32, &Device::Cpu)?; // [T, N, C]
/// let whole = suggest(&net, &sample, &Options::default(), 64, 100_000_000)?;
/// assert_eq!((whole.micro_batch, whole.steps), (64, 1));
/// let cut = suggest(&net, &sample, &Options::default(), 64, 300_000)?;
/// assert!(cut.micro_batch >= 4 && cut.steps.is_power_of_two() && cut.micro_batch * cut.steps == 64);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
///
/// # Errors
/// If the sample does not fit the model, or there is none; if the batch is 0; if not even one sample fits.
pub fn suggest<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    effective_batch: usize,
    budget: usize,
) -> Result<Suggestion> {
    if effective_batch == 0 {
        return Err(Error::Options { what: "an effective batch of 0 samples; at least 1 expected".into() });
    }
    let sample = sample.into();
    let costs = options.costs();
    let batches = Batches::of(model, &sample, options, &costs, "suggest")?;
    let largest = |budget: usize| batches.largest(budget).map_or(0, |(largest, _)| largest);
    if largest(budget) >= effective_batch {
        let plan = batches.plan_for(effective_batch, budget)?;
        return Ok(Suggestion { micro_batch: effective_batch, steps: 1, plan });
    }
    let sums = bytes_of_sums(model);
    let left = budget.saturating_sub(sums);
    // Where nothing fits, the plan for one sample says what would.
    let (micro_batch, steps) = cut(effective_batch, largest(left)).unwrap_or((1, effective_batch));
    let plan = batches.plan_for(micro_batch, left).map_err(|error| match error {
        Error::Budget { smallest, resident, .. } => {
            Error::Budget { budget, smallest: smallest + sums, resident: resident + sums }
        }
        other => other,
    })?;
    Ok(Suggestion { micro_batch, steps, plan })
}

/// Bytes of the buffers that gradients are accumulated in.
fn bytes_of_sums<M: Checkpointable>(model: &M) -> usize {
    let bytes = |tensor: Tensor| {
        let real = real_dtype(tensor.dtype()).unwrap_or(tensor.dtype());
        tensor.elem_count() * real.size_in_bytes()
    };
    distinct(model).into_iter().map(bytes).sum()
}

/// Samples that a micro-batch has at least, where so many fit.
const LEAST: usize = 4;

/// Micro-batch and number of micro-batches for a batch of which at most `largest` samples fit; `None`: none does.
fn cut(batch: usize, largest: usize) -> Option<(usize, usize)> {
    let steps = |micro_batch: usize| batch.div_ceil(micro_batch);
    let best = (1..=largest.min(batch)).max_by_key(|&micro_batch| {
        let steps = steps(micro_batch);
        (micro_batch >= LEAST, steps.is_power_of_two(), batch.is_multiple_of(micro_batch), micro_batch)
    })?;
    Some((best, steps(best)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_batch_is_cut_as_it_says() {
        for (batch, largest, expected) in [
            (64, 20, (16, 4)),
            (64, 64, (64, 1)),
            (12, 5, (4, 3)),  // at least 4 comes before a power of two
            (12, 8, (6, 2)),  // equal ones before the largest
            (24, 10, (6, 4)), // a power of two before the largest
            (5, 4, (4, 2)),
            (16, 3, (2, 8)),
            (7, 1, (1, 7)),
            (3, 100, (3, 1)),
        ] {
            assert_eq!(cut(batch, largest), Some(expected), "{batch} of which {largest} fit");
        }
        assert_eq!(cut(8, 0), None);
    }

    proptest! {
        #[test]
        fn a_cut_covers_the_batch_and_fits(batch in 1usize..300, largest in 1usize..300) {
            let (micro_batch, steps) = cut(batch, largest).unwrap();
            prop_assert!(micro_batch <= largest);
            prop_assert!(micro_batch * steps >= batch && micro_batch * (steps - 1) < batch);
            prop_assert_eq!(micro_batch >= 4, batch.min(largest) >= 4);
        }
    }
}
