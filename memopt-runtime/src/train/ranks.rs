//! The processes that train together, by their communicator.

use super::gradients::Gradients;
use super::group::Group;
use super::{real_dtype, Parameter};
use crate::dist::{Buckets, Communicator, Gradient, Reduce, Values};
use crate::fnv::{fnv, BEGIN};
use crate::module::{NormGroup, NormStatistics, NormSums};
use crate::{storage, Error, Result};
use candle_core::Tensor;
use std::sync::Arc;

/// A group as a step sees it.
#[derive(Debug)]
pub(super) struct Ranks {
    communicator: Arc<dyn Communicator>,
    buckets: Buckets,
}

impl Ranks {
    pub fn new(communicator: Arc<dyn Communicator>) -> Self {
        Ranks { communicator, buckets: Buckets::default() }
    }
}

impl Group for Ranks {
    fn sum_gradients(&self, gradients: &mut Gradients) -> Result<()> {
        let names: Vec<String> = gradients.parameters().iter().map(|p| p.name().to_owned()).collect();
        // Of the shape and type of a parameter's buffer, which is f32 for f16.
        let like = |parameter: &Parameter| -> Result<Tensor> {
            let tensor = parameter.tensor();
            match real_dtype(tensor.dtype()) {
                Some(real) if real != tensor.dtype() => {
                    Ok(Tensor::zeros((), real, tensor.device())?.broadcast_as(tensor.shape())?)
                }
                _ => Ok(tensor.clone()),
            }
        };
        let likes: Vec<Tensor> = gradients.parameters().iter().map(like).collect::<Result<_>>()?;
        // The buffers become tensors without a copy, and the sums become buffers.
        let own: Vec<Option<Tensor>> = gradients
            .places_mut()
            .zip(&likes)
            .map(|(place, like)| Some(storage::into_tensor(place.take()?, like.dims(), false)))
            .collect();
        let list: Vec<Gradient<'_>> = names
            .iter()
            .zip(&likes)
            .zip(&own)
            .map(|((name, parameter), gradient)| Gradient { name, parameter, gradient: gradient.as_ref() })
            .collect();
        let reduced = self.buckets.reduce(self.communicator.as_ref(), &list)?;
        drop(list);
        drop(own);
        for (place, sum) in gradients.places_mut().zip(reduced.gradients) {
            *place = sum.map(|sum| storage::owned(&sum.contiguous()?)).transpose()?;
        }
        Ok(())
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<()> {
        self.communicator.all_reduce(Values::F64(values), Reduce::Sum)
    }

    fn sum_u64(&self, values: &mut [u64]) -> Result<()> {
        self.communicator.all_reduce(Values::U64(values), Reduce::Sum)
    }

    fn max_u64(&self, values: &mut [u64]) -> Result<()> {
        self.communicator.all_reduce(Values::U64(values), Reduce::Max)
    }
}

/// Batch norms whose statistics are those of the batches of all ranks: for
/// [`Session::with_norm_group`](crate::module::Session::with_norm_group).
///
/// For each of its channels a norm sends a mean and then a variance in a forward, and two sums in a backward; nothing of it is sent
/// again in a recompute. With one rank the bits are those of a model without a group.
///
/// ```
/// use memopt_runtime::dist::{Communicator, Single};
/// use memopt_runtime::module::Session;
/// use memopt_runtime::train::synchronized_norms;
/// use std::sync::Arc;
///
/// let group: Arc<dyn Communicator> = Arc::new(Single::new());
/// let session = Session::new(0).with_norm_group(synchronized_norms(group));
/// # let _ = session;
/// ```
pub fn synchronized_norms(communicator: Arc<dyn Communicator>) -> Arc<dyn NormGroup> {
    Arc::new(SynchronizedNorms(communicator))
}

/// A number below 2^16 for a place in the model: sums of squares are exact.
fn tag(part: &str, what: &str) -> f64 {
    let hash = [part, "\0", what].into_iter().fold(BEGIN, fnv);
    ((hash >> 48) as u16).into()
}

#[derive(Debug)]
struct SynchronizedNorms(Arc<dyn Communicator>);

impl SynchronizedNorms {
    /// Adds up what the norms of all ranks give here. What they are at goes along, so that a rank elsewhere is an error.
    fn sum(&self, part: &str, what: &str, values: &mut Vec<f64>) -> Result<()> {
        let tag = tag(part, what);
        values.extend([tag, tag * tag]);
        self.0.all_reduce(Values::F64(values), Reduce::Sum)?;
        let (squares, tags) = (values.pop().unwrap_or_default(), values.pop().unwrap_or_default());
        // Of equal numbers, and of no others (Cauchy and Schwarz).
        match tags * tags == squares * self.0.size() as f64 {
            true => Ok(()),
            false => Err(Error::Training {
                part: part.to_owned(),
                what: format!(
                    "the ranks are at different norms, this one at its {what}; run the same model under the same plan, with as many \
                     micro-batches, on all ranks"
                ),
            }),
        }
    }
}

impl NormGroup for SynchronizedNorms {
    fn statistics(&self, part: &str, own: &NormStatistics) -> Result<NormStatistics> {
        if self.0.size() == 1 {
            return Ok(own.clone());
        }
        let mut totals: Vec<f64> = own.mean.iter().map(|mean| mean * own.count).chain([own.count]).collect();
        self.sum(part, "mean", &mut totals)?;
        let count = totals.pop().unwrap_or_default();
        let mean: Vec<f64> = totals.iter().map(|total| total / count).collect();
        let channels = own.squares.iter().zip(&own.mean).zip(&mean);
        let mut squares: Vec<f64> =
            channels.map(|((squares, one), all)| squares + own.count * (one - all).powi(2)).collect();
        self.sum(part, "variance", &mut squares)?;
        Ok(NormStatistics { mean, squares, count })
    }

    fn sums(&self, part: &str, own: &NormSums) -> Result<NormSums> {
        let channels = own.dy.len();
        let mut all = [own.dy.as_slice(), own.dy_normalized.as_slice()].concat();
        if self.0.size() > 1 {
            self.sum(part, "backward", &mut all)?;
        }
        let dy_normalized = all.split_off(channels);
        Ok(NormSums { dy: all, dy_normalized })
    }
}
