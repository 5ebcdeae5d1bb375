//! Running statistics.

use crate::module::NormStatistics;
use crate::nn::input::wrong;
use crate::Result;
use candle_core::{DType, Tensor, Var};
use candle_nn::{Init, VarBuilder};

/// Mean and variance by channel; variables that no gradient reaches, so that a `VarMap` saves them.
#[derive(Debug)]
pub(super) struct Running {
    mean: Var,
    variance: Var,
}

impl Running {
    pub fn new(channels: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        // Small steps would be lost in 8 or 11 bits.
        let dtype = if vb.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let get = |name, value| {
            let tensor = vb.get_with_hints_dtype(channels, name, Init::Const(value), dtype)?;
            Var::from_tensor(&tensor)
        };
        Ok(Running { mean: get("running_mean", 0.)?, variance: get("running_var", 1.)? })
    }

    /// The running statistics in these variables (other tensors would be copied).
    pub fn of(mean: &Tensor, variance: &Tensor) -> Result<Self> {
        Ok(Running { mean: Var::from_tensor(mean)?, variance: Var::from_tensor(variance)? })
    }

    /// Copies of mean and variance.
    pub fn get(&self) -> Result<(Tensor, Tensor)> {
        Ok((self.mean.as_detached_tensor().copy()?, self.variance.as_detached_tensor().copy()?))
    }

    pub fn set(&self, mean: &Tensor, variance: &Tensor) -> Result<()> {
        for (to, from) in [(&self.mean, mean), (&self.variance, variance)] {
            if from.dims() != to.dims() {
                let what = format!("running statistics {:?} expected, {:?} given", to.dims(), from.dims());
                return Err(wrong("batch norm", what));
            }
        }
        if variance.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?.iter().any(|&value| value < 0.) {
            return Err(wrong("batch norm", "a running variance of at least 0 expected"));
        }
        self.mean.set(&mean.detach().to_dtype(self.mean.dtype())?.copy()?)?;
        self.variance.set(&variance.detach().to_dtype(self.variance.dtype())?.copy()?)?;
        Ok(())
    }

    /// `running = (1 - momentum) running + momentum window`, with the unbiased variance of the window.
    pub fn move_to(&self, statistics: &NormStatistics, momentum: f64) -> Result<()> {
        let unbiased = statistics.count - 1.;
        let variance: Vec<f64> = statistics.squares.iter().map(|squares| squares / unbiased).collect();
        for (running, window) in [(&self.mean, &statistics.mean), (&self.variance, &variance)] {
            let old = values(running)?;
            let new: Vec<f64> =
                old.iter().zip(window).map(|(old, new)| (1. - momentum) * old + momentum * new).collect();
            running.set(&Tensor::from_vec(new, old.len(), running.device())?.to_dtype(running.dtype())?)?;
        }
        Ok(())
    }

    /// As the statistics of a window of one element whose squared deviation is the variance.
    pub fn statistics(&self) -> Result<NormStatistics> {
        Ok(NormStatistics { mean: values(&self.mean)?, squares: values(&self.variance)?, count: 1. })
    }
}

fn values(variable: &Var) -> Result<Vec<f64>> {
    Ok(variable.as_detached_tensor().to_dtype(DType::F64)?.to_vec1()?)
}
