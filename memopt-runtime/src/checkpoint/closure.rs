//! Checkpointed closures: what a person calls.

use super::inputs::Input;
use super::options::Options;
use super::outputs::Outputs;
use super::segment::Segment;
use crate::parameters::{parameters, Parameters};
use crate::Result;
use candle_core::Tensor;

/// Runs a closure of Candle code, and keeps only its inputs for backward.
///
/// The gradients of all tracked inputs and of all variables that the closure reaches are those of the plain code, bit
/// for bit. See the [module's documentation](super) for what the closure may do.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use memopt_runtime::{checkpoint::{checkpoint, Options}, compress::Bit};
///
/// let (a, b) = (Var::new(&[1f32, 0.], &Device::Cpu)?, Var::new(&[1f32, 1.], &Device::Cpu)?);
/// let options = Options::new("both").compressor(Bit);
/// let (sum, product) = checkpoint(|x| Ok(((&x[0] + &x[1])?, (&x[0] * &x[1])?)), &[&a, &b], options)?;
/// let gradients = (sum + product)?.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&b).unwrap().to_vec1::<f32>()?, [2., 1.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// What the closure gives, as [`Error::Segment`](crate::Error::Segment) with the segment's path; its panics, as
/// [`Error::Panicked`](crate::Error::Panicked); [`Error::CapturedActivation`](crate::Error::CapturedActivation);
/// [`Error::CompressorCount`](crate::Error::CompressorCount); [`Error::TooDeep`](crate::Error::TooDeep). Errors of the recompute arrive from `loss.backward()`.
pub fn checkpoint<F, O, I>(f: F, inputs: &[I], options: impl Into<Options>) -> Result<O>
where
    F: Fn(&[Tensor]) -> candle_core::Result<O> + Send + 'static,
    O: Outputs,
    I: Input,
{
    let segment = Segment::new(inputs, options.into())?;
    let ran = segment.run(|x| f(x))?;
    segment.seal(ran, move |x| Ok(f(x)?.into_tensors()))
}

/// As [`checkpoint`], for code that reaches its variables through a struct: the first pass runs on the struct's detached
/// twin, so that it builds no graph and holds no more than evaluation does.
///
/// `f` gets the module and the inputs. All the module's parameters count as reached, and variables that `f` captures
/// are found as with [`checkpoint`].
///
/// ```
/// use candle_core::{Device, Module, Tensor, Var};
/// use candle_nn::Linear;
/// use memopt_runtime::checkpoint::checkpoint_module;
///
/// let w = Var::new(&[[0.5f32, -1.]], &Device::Cpu)?;
/// let layer = Linear::new(w.as_tensor().clone(), None);
/// let x = Tensor::new(&[[1f32, 0.]], &Device::Cpu)?;
/// let y: Tensor = checkpoint_module(&layer, |layer, x| layer.forward(&x[0]), &[&x], "layer")?;
/// assert_eq!(y.sum_all()?.backward()?.get(&w).unwrap().to_vec2::<f32>()?, [[1., 0.]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// As [`checkpoint`]. Also if a parameter of the module was computed from variables.
pub fn checkpoint_module<M, F, O, I>(module: &M, f: F, inputs: &[I], options: impl Into<Options>) -> Result<O>
where
    M: Parameters + Send + 'static,
    F: Fn(&M, &[Tensor]) -> candle_core::Result<O> + Send + 'static,
    O: Outputs,
    I: Input,
{
    let segment = Segment::new(inputs, options.into())?;
    let mut ran = {
        let twin = module.detached();
        segment.run(|x| f(&twin, x))?
    };
    for (_, parameter) in parameters(module) {
        segment.add_parameter(&mut ran, parameter)?;
    }
    let module = module.clone();
    segment.seal(ran, move |x| Ok(f(&module, x)?.into_tensors()))
}
