//! Candle's optimizers.

use super::config::wrong;
use super::Optimizer;
use crate::checkpoint::mark_changed;
use crate::train::gradients::tensor_of;
use crate::train::{Gradients, NamedParameters};
use crate::{Error, Result};
use candle_core::{DType, Device, Tensor};
use std::fmt;

/// Any optimizer of Candle's interface, over our parameters.
///
/// Its state cannot be saved, since Candle's optimizers do not show theirs, and the gradients are copied for it.
///
/// ```
/// use candle_core::{Device, Var};
/// use memopt_runtime::train::{CandleOptimizer, Gradients, NamedParameters, Optimizer};
///
/// let w = Var::new(&[1f32, -2.], &Device::Cpu)?;
/// let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())])?;
/// let mut sgd = CandleOptimizer::<candle_nn::SGD>::new(&parameters, 0.5)?;
/// sgd.step(&Gradients::new(&parameters, w.sqr()?.sum_all()?.backward()?)?)?;
/// assert_eq!(w.to_vec1::<f32>()?, [0., 0.]);
/// assert!(sgd.state().is_err());
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub struct CandleOptimizer<O> {
    parameters: NamedParameters,
    inner: O,
}

impl<O: candle_nn::Optimizer> CandleOptimizer<O> {
    /// An optimizer of these parameters, of Candle's configuration.
    ///
    /// # Errors
    /// Those of Candle.
    pub fn new(parameters: &NamedParameters, config: O::Config) -> Result<Self> {
        let inner = O::new(parameters.variables()?, config)?;
        Ok(CandleOptimizer { parameters: parameters.clone(), inner })
    }

    /// Candle's optimizer.
    pub fn inner(&self) -> &O {
        &self.inner
    }
}

fn name<O>() -> &'static str {
    std::any::type_name::<O>()
}

impl<O> fmt::Debug for CandleOptimizer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CandleOptimizer<{}>", name::<O>())
    }
}

impl<O: candle_nn::Optimizer + Send> Optimizer for CandleOptimizer<O> {
    fn parameters(&self) -> &NamedParameters {
        &self.parameters
    }

    /// Candle's own step. If it fails midway, some parameters have moved.
    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        if !gradients.parameters().is_same(&self.parameters) {
            return Err(wrong(name::<O>(), "the gradients are of other parameters than the optimizer's"));
        }
        // Candle makes a store in a backward only: here one of a constant.
        let mut store = Tensor::zeros((), DType::F32, &Device::Cpu)?.backward()?;
        for (parameter, buffer) in gradients.iter() {
            let Some(buffer) = buffer else { continue };
            let gradient = tensor_of(parameter, buffer).to_dtype(parameter.tensor().dtype())?;
            store.insert(parameter.tensor(), gradient);
        }
        let stepped = self.inner.step(&store);
        let moved = gradients.iter().filter(|(_, buffer)| buffer.is_some());
        moved.for_each(|(parameter, _)| mark_changed(parameter.tensor()));
        Ok(stepped?)
    }

    fn learning_rate(&self) -> f64 {
        self.inner.learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.inner.set_learning_rate(rate);
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        Err(Error::StateHidden { owner: name::<O>().into() })
    }

    fn load_state(&mut self, _: &[(String, Tensor)]) -> Result<()> {
        Err(Error::StateHidden { owner: name::<O>().into() })
    }
}
