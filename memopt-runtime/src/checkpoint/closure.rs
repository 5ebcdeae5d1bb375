//! The first pass: run the closure, keep little, and tell the graph how to get the rest back.

use super::inputs::Input;
use super::options::Options;
use super::outputs::Outputs;
use super::replay::{Fingerprint, Replay};
use crate::autograd::{apply, reached, Age, Edge, Output, Reached};
use crate::compress::{self, Pack, Packed};
use crate::panics::caught;
use crate::parameters::{parameters, Parameters};
use crate::{memory, Error, Phase, Result};
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
/// What the closure gives or panics with, as [`Error::Segment`] with the segment's path; [`Error::CapturedActivation`];
/// [`Error::CompressorCount`]; [`Error::TooDeep`]. Errors of the recompute arrive from `loss.backward()`.
pub fn checkpoint<F, O, I>(f: F, inputs: &[I], options: impl Into<Options>) -> Result<O>
where
    F: Fn(&[Tensor]) -> candle_core::Result<O> + Send + 'static,
    O: Outputs,
    I: Input,
{
    let segment = Segment::new(inputs, options.into())?;
    let first = segment.first_pass(|x| f(x))?;
    segment.seal(first, move |x| Ok(f(x)?.into_tensors()))
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
/// As [`checkpoint`]. A parameter of the module that was computed from variables is a captured activation.
pub fn checkpoint_module<M, F, O, I>(module: &M, f: F, inputs: &[I], options: impl Into<Options>) -> Result<O>
where
    M: Parameters + Send + 'static,
    F: Fn(&M, &[Tensor]) -> candle_core::Result<O> + Send + 'static,
    O: Outputs,
    I: Input,
{
    let segment = Segment::new(inputs, options.into())?;
    let mut first = {
        let twin = module.detached();
        segment.first_pass(|x| f(&twin, x))?
    };
    for (_, parameter) in parameters(module) {
        if !parameter.is_variable() {
            return Err(segment.captured(&parameter));
        }
        if first.variables.iter().all(|v| v.id() != parameter.id()) {
            first.variables.push(parameter);
        }
    }
    let module = module.clone();
    segment.seal(first, move |x| Ok(f(&module, x)?.into_tensors()))
}

/// What a first pass gave.
struct FirstPass {
    outputs: Vec<Tensor>,
    /// The variables that it reached.
    variables: Vec<Tensor>,
    /// When it began.
    since: Age,
}

/// A closure's inputs, before its first pass.
struct Segment {
    options: Options,
    compressors: Vec<std::sync::Arc<dyn compress::SpikeCompressor>>,
    edges: Vec<Edge>,
    /// Not tracked, in the order in memory that the recompute will see too.
    inputs: Vec<Tensor>,
}

impl Segment {
    fn new<I: Input>(inputs: &[I], options: Options) -> Result<Self> {
        let compressors = options.compressors_for(inputs.len())?;
        let edges: Vec<Edge> = inputs.iter().map(|x| Edge::to(x.tensor())).collect();
        let inputs = inputs
            .iter()
            .zip(&edges)
            .map(|(x, edge)| {
                let x = x.tensor().detach();
                match compress::recompute_sees_the_same(x.layout(), edge.is_tracked()) {
                    true => Ok(x),
                    false => Ok(x.contiguous()?),
                }
            })
            .collect::<Result<_>>()?;
        Ok(Segment { options, compressors, edges, inputs })
    }

    fn first_pass<O: Outputs>(
        &self,
        f: impl FnOnce(&[Tensor]) -> candle_core::Result<O>,
    ) -> Result<FirstPass> {
        let name = &self.options.segment;
        let since = Age::now()?;
        let outputs = caught(name, Phase::Forward, || Ok(f(&self.inputs)?.into_tensors()))
            .map_err(|e| e.in_segment(name, Phase::Forward))?;
        let Reached { variables, older } = reached(&outputs, since);
        match older {
            Some(captured) => Err(self.captured(&captured)),
            None => Ok(FirstPass { outputs, variables, since }),
        }
    }

    fn captured(&self, tensor: &Tensor) -> Error {
        Error::CapturedActivation {
            segment: self.options.segment.clone(),
            shape: tensor.shape().clone(),
            dtype: tensor.dtype(),
        }
    }

    /// Packs the inputs and makes the graph's function.
    fn seal<O: Outputs>(
        self,
        first: FirstPass,
        f: impl Fn(&[Tensor]) -> candle_core::Result<Vec<Tensor>> + Send + 'static,
    ) -> Result<O> {
        let FirstPass { outputs, variables, since } = first;
        let Segment { options, compressors, mut edges, inputs } = self;
        let Options { segment, verify, .. } = options;
        if variables.is_empty() && !edges.iter().any(Edge::is_tracked) {
            return O::from_tensors(outputs);
        }
        let fingerprint = Fingerprint::of(&outputs, &variables, verify)?;
        // The graph of the first pass goes first, then one output after the other.
        let outputs: Vec<Tensor> = outputs.into_iter().map(|y| y.detach()).collect();
        let outputs = outputs.into_iter().map(|y| Output::copy_of(&y)).collect::<Result<_>>()?;
        let mut packed = Vec::with_capacity(inputs.len());
        for (index, (x, compressor)) in inputs.into_iter().zip(&compressors).enumerate() {
            let p: Packed = compressor.pack(&x).map_err(|e| e.in_segment(&segment, Phase::Forward))?;
            compress::record(&segment, index, compressor.name(), &p);
            packed.push(p);
        }
        let held = memory::Held::new(&segment, packed.iter().map(Packed::buffer));
        let tracked = edges.iter().map(Edge::is_tracked).collect();
        edges.extend(variables.iter().map(Edge::to));
        memory::mark_with(|| format!("{segment}: forward"));
        let replay =
            Replay { segment: segment.clone(), f, packed, tracked, variables, since, fingerprint, held };
        O::from_tensors(apply(segment, edges, outputs, move |gradients| replay.backward(gradients))?)
    }
}
