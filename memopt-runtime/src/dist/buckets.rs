//! Gradients of all ranks, added up a bucket at a time.

use super::communicator::{Communicator, Reduce, Values};
use super::listed::{sum_type, Listed};
use super::together::in_common;
use crate::Result;
use candle_core::{DType, Tensor};
use std::ops::Range;

/// A parameter and its gradient on this rank.
#[derive(Debug, Clone, Copy)]
pub struct Gradient<'a> {
    /// The parameter's name.
    pub name: &'a str,
    /// The parameter: its shape, dtype and device are the gradient's.
    pub parameter: &'a Tensor,
    /// `None` if this rank's loss does not depend on the parameter.
    pub gradient: Option<&'a Tensor>,
}

/// What came of a reduction.
#[derive(Debug, Clone)]
pub struct Reduced {
    /// The sums over the ranks, in the order given; `None` for parameters without a gradient on any rank. Those of one bucket
    /// share its memory.
    pub gradients: Vec<Option<Tensor>>,
    /// Reductions that it took.
    pub buckets: usize,
    /// Bytes of values that this rank sent for them.
    pub bytes_sent: u64,
    /// Gradients that this rank did not have and another did: they counted as zeros.
    pub zeros: usize,
}

/// Adds up gradients over the ranks in flat buckets of about equal size: many small ones go in one message.
///
/// A bucket is reduced as a whole, in the order given: `sum = ((g_0 + g_1) + g_2) + ...` over the ranks, element by element, so that
/// the result does not depend on the size of the buckets. Gradients of f16 and bf16 are added up in f32 and rounded
/// once at the end.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use memopt_runtime::dist::{Buckets, Gradient, Single};
///
/// let weight = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
/// let gradient = Tensor::new(&[3f32, 4.], &Device::Cpu)?;
/// let mine = [Gradient { name: "weight", parameter: &weight, gradient: Some(&gradient) }];
/// let sum = Buckets::default().reduce(&Single::new(), &mine)?;
/// assert_eq!(sum.gradients[0].as_ref().unwrap().to_vec1::<f32>()?, [3., 4.]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    bytes: usize,
}

impl Default for Buckets {
    /// Buckets of 32 MiB.
    fn default() -> Self {
        Self::new(32 << 20)
    }
}

impl Buckets {
    /// Buckets of so many bytes at most; a larger gradient is a bucket by itself.
    pub fn new(bytes: usize) -> Self {
        Self { bytes }
    }

    /// The sums of the ranks' gradients.
    ///
    /// The ranks first compare names, shapes and dtypes. If a rank lacks a gradient, they agree on which there are; one
    /// that another rank has counts as zeros.
    ///
    /// # Errors
    /// On all ranks: if the lists are not the same, a gradient is not of its parameter's shape and dtype, or a dtype
    /// is not a float; and as [`Communicator::all_reduce`].
    pub fn reduce(&self, communicator: &dyn Communicator, gradients: &[Gradient<'_>]) -> Result<Reduced> {
        let before = communicator.bytes_sent();
        let list: Vec<_> = gradients.iter().map(|g| Listed::new(g.name, g.parameter)).collect();
        let problem = gradients.iter().find_map(problem);
        let lacks = gradients.iter().any(|g| g.gradient.is_none());
        let mut exists = vec![1; gradients.len()];
        if in_common(communicator, &list, problem, lacks)? {
            exists = gradients.iter().map(|g| u64::from(g.gradient.is_some())).collect();
            communicator.all_reduce(Values::U64(&mut exists), Reduce::Max)?;
        }
        let reduced: Vec<usize> = (0..gradients.len()).filter(|&i| exists[i] != 0).collect();
        let zeros = reduced.iter().filter(|&&i| gradients[i].gradient.is_none()).count();

        let mut sums = vec![None; gradients.len()];
        let buckets = self.cut(gradients, &reduced);
        for bucket in &buckets {
            let members = &reduced[bucket.clone()];
            for (&i, sum) in members.iter().zip(sum_of(communicator, gradients, members)?) {
                sums[i] = Some(sum);
            }
        }
        let bytes_sent = communicator.bytes_sent() - before;
        Ok(Reduced { gradients: sums, buckets: buckets.len(), bytes_sent, zeros })
    }

    /// Where one bucket ends and the next begins: at its size, and where another type or device begins.
    fn cut(&self, gradients: &[Gradient<'_>], reduced: &[usize]) -> Vec<Range<usize>> {
        let mut buckets: Vec<Range<usize>> = Vec::new();
        let mut filled = 0;
        for (place, &i) in reduced.iter().enumerate() {
            let parameter = gradients[i].parameter;
            let bytes = parameter.elem_count() * type_of(parameter).size_in_bytes();
            let like = |first: usize| {
                let first = gradients[reduced[first]].parameter;
                type_of(first) == type_of(parameter) && first.device().same_device(parameter.device())
            };
            match buckets.last_mut() {
                Some(bucket) if bytes <= self.bytes.saturating_sub(filled) && like(bucket.start) => {
                    bucket.end = place + 1;
                    filled += bytes;
                }
                _ => {
                    buckets.push(place..place + 1);
                    filled = bytes;
                }
            }
        }
        buckets
    }
}

/// The sums of a bucket's gradients, each with its parameter's shape and dtype.
fn sum_of(
    communicator: &dyn Communicator,
    gradients: &[Gradient<'_>],
    members: &[usize],
) -> Result<Vec<Tensor>> {
    let flat = |&i: &usize| -> candle_core::Result<Tensor> {
        let Gradient { parameter, gradient, .. } = gradients[i];
        match gradient {
            Some(gradient) => gradient.detach().flatten_all()?.to_dtype(type_of(parameter)),
            None => Tensor::zeros(parameter.elem_count(), type_of(parameter), parameter.device()),
        }
    };
    let bucket = match members {
        [only] => flat(only)?,
        many => Tensor::cat(&many.iter().map(flat).collect::<candle_core::Result<Vec<_>>>()?, 0)?,
    };
    let bucket = communicator.all_reduce_tensor(&bucket, Reduce::Sum)?;
    let mut start = 0;
    let cut = |&i: &usize| {
        let parameter = gradients[i].parameter;
        let sum = bucket.narrow(0, start, parameter.elem_count())?;
        start += parameter.elem_count();
        Ok(sum.reshape(parameter.shape())?.to_dtype(parameter.dtype())?)
    };
    members.iter().map(cut).collect()
}

/// The type that a parameter's gradient is added up in.
fn type_of(parameter: &Tensor) -> DType {
    sum_type(parameter.dtype()).unwrap_or(parameter.dtype())
}

/// What is wrong with a gradient, if anything.
fn problem(gradient: &Gradient<'_>) -> Option<String> {
    let Gradient { name, parameter, gradient } = gradient;
    let own = Listed::new(name, parameter);
    if sum_type(parameter.dtype()).is_none() {
        return Some(format!(
            "{own} is no float and has no gradient to be reduced; leave it out on all ranks"
        ));
    }
    let gradient = gradient.as_ref()?;
    let fits = gradient.dims() == parameter.dims()
        && gradient.dtype() == parameter.dtype()
        && gradient.device().same_device(parameter.device());
    (!fits).then(|| {
        let got = Listed::new(name, gradient);
        format!(
            "the gradient {got} is not of its parameter's shape, dtype and device, {own}; give one that is"
        )
    })
}
