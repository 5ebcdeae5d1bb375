//! Where the layers of a segment add up the gradients of their weights while it is gone back through.

use super::weight::rounded;
use crate::Result;
use candle_core::{CpuStorage, DType, Device, Tensor, TensorId, Var};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// One buffer for each use of a weight, shared by all time chunks: a sum goes on where the later chunk left it, so that
/// it is the same sequence of additions as over the whole window.
#[derive(Debug)]
pub struct Accumulators {
    /// A tracked scalar, for the edges of weights whose gradients go into a buffer here.
    ghost: Var,
    sums: Mutex<BTreeMap<Use, Vec<Sum>>>,
}

/// Path of the layer, and which of its weights.
type Use = (String, &'static str);

#[derive(Debug)]
struct Sum {
    /// Of which it is: one path may be that of several layers which are run by hand.
    variable: TensorId,
    /// Of the variable.
    dtype: DType,
    /// Taken while a layer adds to it.
    buffer: Option<CpuStorage>,
}

impl Accumulators {
    pub(crate) fn new() -> Result<Self> {
        Ok(Accumulators { ghost: Var::zeros((), DType::F32, &Device::Cpu)?, sums: Mutex::default() })
    }

    /// A scalar variable that all weights with a buffer here have their edge to.
    pub(crate) fn ghost(&self) -> &Tensor {
        self.ghost.as_tensor()
    }

    /// The sum so far, if there is one.
    pub(super) fn take(&self, path: &str, weight: &'static str, variable: &Tensor) -> Option<CpuStorage> {
        let mut sums = self.sums.lock();
        let of_use = sums.get_mut(&(path.to_owned(), weight))?;
        of_use.iter_mut().find(|sum| sum.variable == variable.id())?.buffer.take()
    }

    /// Puts a sum back.
    pub(super) fn put(&self, path: &str, weight: &'static str, variable: &Tensor, buffer: CpuStorage) {
        let sum = Sum { variable: variable.id(), dtype: variable.dtype(), buffer: Some(buffer) };
        let mut sums = self.sums.lock();
        let of_use = sums.entry((path.to_owned(), weight)).or_default();
        match of_use.iter_mut().find(|earlier| earlier.variable == sum.variable) {
            Some(earlier) => *earlier = sum,
            None => of_use.push(sum),
        }
    }

    /// Takes the sums of all uses of a variable, in the order of their paths.
    pub(crate) fn of(&self, variable: TensorId) -> Vec<CpuStorage> {
        let mut sums = self.sums.lock();
        let of_variable = sums.values_mut().flatten().filter(|sum| sum.variable == variable);
        of_variable.filter_map(|sum| Some(rounded(sum.buffer.take()?, sum.dtype))).collect()
    }
}
