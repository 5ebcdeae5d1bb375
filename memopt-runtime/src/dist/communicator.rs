//! What a process group can do.

use super::call::Kind;
use super::error::GroupError;
use crate::Result;
use candle_core::{DType, Device, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// What is reduced, in place.
#[derive(Debug)]
pub enum Values<'a> {
    /// Single precision.
    F32(&'a mut [f32]),
    /// Double precision.
    F64(&'a mut [f64]),
    /// Counts.
    U64(&'a mut [u64]),
}

impl Values<'_> {
    /// The type of an element.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Values::F32(_) => Kind::F32,
            Values::F64(_) => Kind::F64,
            Values::U64(_) => Kind::U64,
        }
    }

    /// The elements as bytes.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Values::F32(v) => bytemuck::cast_slice_mut(v),
            Values::F64(v) => bytemuck::cast_slice_mut(v),
            Values::U64(v) => bytemuck::cast_slice_mut(v),
        }
    }
}

/// How the ranks' values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// `((r0 + r1) + r2) + ...`; counts stop at `u64::MAX`.
    Sum,
    /// The largest; of equal ones (0 and -0) that of the lowest rank, and NaN if any is NaN.
    Max,
}

/// A rank of a process group, and how it talks to the others.
///
/// Each method but [`rank`](Self::rank), [`size`](Self::size), [`bytes_sent`](Self::bytes_sent) and
/// [`abort`](Self::abort) is called by all ranks, in the same order. A rank is `Sync`, but of two threads of one rank that
/// call at once it is not said who goes first: let one thread call.
///
/// # Errors
/// Of all of them: [`GroupError`], and the same on all ranks.
pub trait Communicator: Debug + Send + Sync {
    /// Which rank this is, counted from 0.
    fn rank(&self) -> usize;

    /// Ranks in the group.
    fn size(&self) -> usize;

    /// Combines the ranks' values element by element, in rank order: `((r0 + r1) + r2) + ...`. All ranks get the same bits.
    /// (Which NaN it is that comes of a NaN is for the processor to say; it is the same one on all ranks.)
    ///
    /// # Errors
    /// If the ranks do not all give as many values of the same type, or one of them failed. The values may be those of
    /// before or partly reduced then, if a rank failed midway.
    fn all_reduce(&self, values: Values<'_>, reduce: Reduce) -> Result<()>;

    /// Gives all ranks the bytes of `root`; the others' are overwritten, whatever their number.
    ///
    /// # Errors
    /// If there is no such rank, the ranks name different ones, or one of them failed.
    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<()>;

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// If a rank called something else, or failed.
    fn barrier(&self) -> Result<()>;

    /// Combines the ranks' tensors, as [`all_reduce`](Self::all_reduce); the result has the tensor's shape and is where it
    /// was. `f32` and `f64`; through host memory, unless a group has a shorter way between its devices.
    ///
    /// # Errors
    /// As of [`all_reduce`](Self::all_reduce), and for another dtype.
    fn all_reduce_tensor(&self, bucket: &Tensor, reduce: Reduce) -> Result<Tensor> {
        let flat = bucket.flatten_all()?.to_device(&Device::Cpu)?;
        let reduced = match bucket.dtype() {
            DType::F32 => {
                let mut values = flat.to_vec1()?;
                self.all_reduce(Values::F32(&mut values), reduce)?;
                Tensor::from_vec(values, bucket.shape(), bucket.device())
            }
            DType::F64 => {
                let mut values = flat.to_vec1()?;
                self.all_reduce(Values::F64(&mut values), reduce)?;
                Tensor::from_vec(values, bucket.shape(), bucket.device())
            }
            dtype => return Err(GroupError::DType { dtype }.into()),
        };
        Ok(reduced?)
    }

    /// Bytes of values that this rank has handed to others so far, for counting traffic. What ranks tell each other to
    /// stay in step is not counted.
    fn bytes_sent(&self) -> u64;

    /// Tells the others that this rank failed: their current and next calls end with
    /// [`GroupError::RankFailed`] instead of waiting. The group is over. (Under MPI the whole job ends, this
    /// process too.)
    fn abort(&self, why: &str);
}

/// A handle is as good as the rank.
macro_rules! handle {
    ($($handle:ty),*) => {$(
        impl<C: Communicator + ?Sized> Communicator for $handle {
            fn rank(&self) -> usize {
                (**self).rank()
            }

            fn size(&self) -> usize {
                (**self).size()
            }

            fn all_reduce(&self, values: Values<'_>, reduce: Reduce) -> Result<()> {
                (**self).all_reduce(values, reduce)
            }

            fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<()> {
                (**self).broadcast(root, bytes)
            }

            fn barrier(&self) -> Result<()> {
                (**self).barrier()
            }

            fn all_reduce_tensor(&self, bucket: &Tensor, reduce: Reduce) -> Result<Tensor> {
                (**self).all_reduce_tensor(bucket, reduce)
            }

            fn bytes_sent(&self) -> u64 {
                (**self).bytes_sent()
            }

            fn abort(&self, why: &str) {
                (**self).abort(why)
            }
        }
    )*};
}
handle!(&C, Arc<C>, Box<C>);
