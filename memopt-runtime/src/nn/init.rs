//! Initial weights from a seed.
//!
//! Candle's own generator on the CPU cannot be seeded. [`seeded`] makes a `VarBuilder` whose values are a pure function
//! of the seed, the variable's name and the element's index: the same on every machine and for any number of threads,
//! whatever else is created before or after.
//!
//! ```
//! use candle_core::{DType, Device};
//! use candle_nn::VarMap;
//! use memopt_runtime::nn::{init, Linear, LinearConfig};
//!
//! let make = |seed| {
//!     let variables = VarMap::new();
//!     let vb = init::seeded(&variables, seed, DType::F32, &Device::Cpu);
//!     Linear::new(3, 2, LinearConfig::default(), vb.pp("head"))?.weight().to_vec2::<f32>()
//! };
//! assert_eq!(make(1)?, make(1)?);
//! assert_ne!(make(1)?, make(2)?);
//! # Ok::<(), candle_core::Error>(())
//! ```

use super::random::Stream;
use candle_core::{DType, Device, Result, Shape, Tensor, Var};
use candle_nn::init::{FanInOut, NonLinearity, NormalOrUniform};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder, VarMap};

/// He's normal initialization for layers before a rectifier (He et al. 2015): deviation `sqrt(2 / fan)`.
pub const fn kaiming_normal(fan: FanInOut) -> Init {
    Init::Kaiming { dist: NormalOrUniform::Normal, fan, non_linearity: NonLinearity::ReLU }
}

/// He's uniform initialization for layers before a rectifier: uniform in `+-sqrt(6 / fan)`.
pub const fn kaiming_uniform(fan: FanInOut) -> Init {
    Init::Kaiming { dist: NormalOrUniform::Uniform, fan, non_linearity: NonLinearity::ReLU }
}

/// A builder that keeps variables in `variables` and makes missing ones from `seed`.
///
/// Variables that are there already are taken as they are.
pub fn seeded(variables: &VarMap, seed: u64, dtype: DType, device: &Device) -> VarBuilder<'static> {
    let backend = Seeded { variables: variables.clone(), seed };
    VarBuilder::from_backend(Box::new(backend), dtype, device.clone())
}

/// The values that a variable of this name begins with, in row-major order.
pub fn values(init: Init, shape: &Shape, seed: u64, name: &str) -> Vec<f64> {
    let stream = Stream::of_variable(seed, name);
    let n = shape.elem_count() as u64;
    let uniform =
        |low: f64, high: f64| (0..n).map(|index| low + (high - low) * stream.uniform(index)).collect();
    let normal =
        |mean: f64, deviation: f64| (0..n).map(|index| mean + deviation * stream.normal(index)).collect();
    match init {
        Init::Const(value) => vec![value; shape.elem_count()],
        Init::Randn { mean, stdev } => normal(mean, stdev),
        Init::Uniform { lo, up } => uniform(lo, up),
        Init::Kaiming { dist, fan, non_linearity } => {
            let deviation = non_linearity.gain() / (fan.for_shape(shape) as f64).sqrt();
            match dist {
                NormalOrUniform::Normal => normal(0., deviation),
                NormalOrUniform::Uniform => {
                    let bound = 3f64.sqrt() * deviation;
                    uniform(-bound, bound)
                }
            }
        }
    }
}

struct Seeded {
    variables: VarMap,
    seed: u64,
}

impl SimpleBackend for Seeded {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let Ok(mut variables) = self.variables.data().lock() else {
            candle_core::bail!("`{name}`: the variable map was left locked by a panic")
        };
        if let Some(variable) = variables.get(name) {
            if variable.shape() != &shape || variable.dtype() != dtype {
                candle_core::bail!(
                    "`{name}`: {shape:?} of {dtype:?} wanted, but the variable is {:?} of {:?}",
                    variable.shape(),
                    variable.dtype()
                )
            }
            return Ok(variable.as_tensor().clone());
        }
        let values = Tensor::from_vec(values(init, &shape, self.seed, name), shape, device)?;
        let variable = Var::from_tensor(&values.to_dtype(dtype)?)?;
        variables.insert(name.to_owned(), variable.clone());
        Ok(variable.into_inner())
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        let variables = self.variables.data().lock().ok();
        match variables.as_ref().and_then(|variables| variables.get(name)) {
            Some(variable) => Ok(variable.as_tensor().clone()),
            None => candle_core::bail!("no variable `{name}`, and no shape to make it with"),
        }
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.variables.data().lock().is_ok_and(|variables| variables.contains_key(name))
    }
}
