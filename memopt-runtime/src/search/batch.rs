//! A plan for a batch of another size than the sample's.

use super::budget::{fastest_within, smallest_peak};
use super::cost::CostTable;
use super::optimize::{batch_of, resized, traced, weights_of, Sample};
use super::options::{wrong, Options};
use super::outline::Size;
use super::simulate::predict;
use crate::module::Checkpointable;
use crate::plan::Plan;
use crate::{Error, Result};

/// The fastest plan whose step fits in so many bytes with a batch of `batch` images, all that is resident counted, as
/// [`max_batch`](super::max_batch) counts it. Nothing larger than the sample is run.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::nn::{init::seeded, Linear};
/// use memopt_runtime::search::{plan_for_batch, Options};
/// use memopt_runtime::Error;
///
/// let net = vec![Linear::new(64, 64, Default::default(), seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu))?];
/// let sample = Tensor::ones((4, 2, 64), DType::F32, &Device::Cpu)?; // [T, N, C]
/// assert!(plan_for_batch(&net, &sample, &Options::default(), 32, 10_000_000)?.is_empty()); // nothing need be recomputed
/// let error = plan_for_batch(&net, &sample, &Options::default(), 32, 1_000).unwrap_err();
/// assert!(matches!(error, Error::Budget { budget: 1_000, .. }));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// If the sample does not fit the model, or there is none; if no plan fits.
pub fn plan_for_batch<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    batch: usize,
    budget: usize,
) -> Result<Plan> {
    options.check()?;
    let Sample(samples) = sample.into();
    let costs = CostTable::default();
    let Some((traced, _)) = traced(model, &samples, costs.threads())? else {
        return Err(wrong("plan_for_batch needs a sample input; give one".into()));
    };
    let sized = resized(&traced, Size { from: batch_of(&traced), to: batch, threads: costs.threads() });
    let weights = weights_of(model);
    let optimizer = (weights as f64 * options.optimizer_bytes_per_parameter_byte) as usize;
    let resident = weights + optimizer + sized.input.bytes();
    let fitting =
        budget.checked_sub(resident).and_then(|limit| fastest_within(&sized, options, &costs, limit));
    fitting.ok_or_else(|| {
        let plain = predict(&sized, &Plan::new(), &costs).peak;
        let smallest = resident + smallest_peak(&sized, options, &costs, plain);
        Error::Budget { budget, smallest, resident }
    })
}
