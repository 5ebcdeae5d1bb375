//! The linear layer.

mod dense;
mod event;
#[cfg(test)]
mod tests;

use super::conv::{buffers, DEFAULT_INIT};
use super::element::{with_element, Element};
use super::function::{function, gradient};
use super::input::{contiguous, read, read_reals, reals, same_dtype, take, weight_fits, wrong, Input};
use super::product::OUTPUT_GROUP;
use super::reduce::{accumulate, add_bias_gradient};
use crate::autograd::Gradient;
use crate::compress::kernels::{self, SimdLevel};
use crate::module::{
    rows, ChannelLayer, Checkpointable, Context, Footprint, Incoming, Part, Signal, WeightGradient, Work,
};
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::{CpuStorage, Shape, Tensor};
use candle_nn::{Init, VarBuilder};
use dense::Sizes;
use std::ops::Range;

/// `y = x weight^T + bias`, over the last dimension
///
/// `[T, N, ..., in]` -> `[T, N, ..., out]`; `weight` is `[out, in]`. As PyTorch's `Linear`. Products are made for one
/// time step at a time; the function keeps the input (shared) and nothing else.
///
/// Rows of zeros and ones with 40% of ones at most are computed by their ones, with additions only, and so is the gradient of the
/// weight of a time step with 30% at most; from 32 input features on, for blocks of 32 output features, and a last one of more
/// than 16; for the output, only blocks whose weights are finite. A gradient that is not finite makes NaN of all weights of its
/// output feature there. The rest is products.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

/// Configuration of [`Linear`]: `LinearConfig::default().bias(false)`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LinearConfig {
    /// Whether there is a bias; true by default.
    pub bias: bool,
    /// How the weight begins; by default uniform in `+-1 / sqrt(in)`.
    pub init: Init,
}

impl Default for LinearConfig {
    fn default() -> Self {
        LinearConfig { bias: true, init: DEFAULT_INIT }
    }
}

impl LinearConfig {
    /// Sets whether there is a bias.
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets how the weight begins.
    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }
}

impl Linear {
    /// A layer with the variables `weight` and, unless the configuration says no, `bias` (uniform in `+-1 / sqrt(in)`).
    ///
    /// # Errors
    /// If there are no features on one side, or the variables cannot be had.
    pub fn new(
        in_features: usize,
        out_features: usize,
        config: LinearConfig,
        vb: VarBuilder<'_>,
    ) -> Result<Self> {
        weight_fits(&vb.prefix(), &[out_features, in_features])?;
        let weight = vb.get_with_hints((out_features, in_features), "weight", config.init)?;
        let bound = 1. / (in_features as f64).sqrt();
        let bias = match config.bias {
            true => Some(vb.get_with_hints(out_features, "bias", Init::Uniform { lo: -bound, up: bound })?),
            false => None,
        };
        Ok(Linear { weight, bias })
    }

    /// A layer with these tensors, `[out, in]` and `[out]`.
    pub fn from_tensors(weight: Tensor, bias: Option<Tensor>) -> Self {
        Linear { weight, bias }
    }

    /// The weight, `[out, in]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    fn sizes(&self, part: &str, x: &Tensor) -> Result<Sizes> {
        same_dtype(part, x, &self.weight)?;
        let (&[out, inputs], &[steps, _, .., width]) = (self.weight.dims(), x.dims()) else {
            let (x, weight) = (x.dims(), self.weight.dims());
            let what = format!(
                "an input [T, N, ..., in] and a weight [out, in] expected, {x:?} and {weight:?} given"
            );
            return Err(wrong(part, what));
        };
        if inputs == 0 || out == 0 {
            return Err(wrong(part, format!("a weight of shape {:?} has no features", self.weight.dims())));
        }
        if width != inputs {
            return Err(wrong(part, format!("{inputs} features expected, {width} given")));
        }
        if self.bias.as_ref().is_some_and(|bias| bias.dims() != [out] || bias.dtype() != x.dtype()) {
            return Err(wrong(part, format!("a bias [{out}] of the weight's dtype expected")));
        }
        let rows = x.dims()[1..x.dims().len() - 1].iter().product();
        Ok(Sizes { steps, rows, inputs, outputs: out })
    }
}

#[diagnostic::do_not_recommend]
impl Parameters for Linear {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("weight", &self.weight);
        if let Some(bias) = &self.bias {
            visitor.field("bias", bias);
        }
    }

    fn detached(&self) -> Self {
        Linear { weight: self.weight.detach(), bias: self.bias.as_ref().map(Tensor::detach) }
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for Linear {
    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        let bias = self.bias.as_ref().map(|bias| rows(bias, &channels)).transpose()?;
        Ok(Some(Part::of(&Linear { weight: rows(&self.weight, &channels)?, bias })))
    }

    fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        Some(self)
    }

    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let context = &context.layer();
        let x = Input::new(x, context)?;
        let sizes = self.sizes(context.path(), &x.values)?;
        with_element!(context.path(), x.values.dtype(), E => self.run::<E>(x, context, sizes))
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let (&[outputs, inputs], Some(&width)) = (self.weight.dims(), x.dims.last()) else { return None };
        (width == inputs).then_some(())?;
        let mut dims = x.dims.clone();
        dims.pop();
        let rows: usize = dims.iter().product();
        dims.push(outputs);
        let y = x.with_dims(dims);
        let products = (rows * inputs * outputs) as f64;
        let steps = x.dims.first().copied()?;
        let sizes = Sizes { steps, rows: rows.checked_div(steps).unwrap_or(0), inputs, outputs };
        let forward = Work { products, ..Work::moving(x.bytes() + y.bytes()) };
        let forward = forward.with_scratch(event::forward_scratch(sizes, x)).unpacking(x.bytes());
        let backward = Work { products: 2. * products, ..Work::moving(2 * (x.bytes() + y.bytes())) };
        let backward = backward.with_scratch(event::backward_scratch(sizes, x)).unpacking(x.bytes());
        let input_scratch = sizes.input_scratch(x);
        Some(Footprint {
            output: y.dims,
            forward,
            backward,
            input_scratch,
            keeps_input: true,
            ..Footprint::default()
        })
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

impl Linear {
    fn run<E: Element + kernels::Element>(
        &self,
        x: Input,
        context: &Context,
        sizes: Sizes,
    ) -> Result<Signal> {
        let part = context.path().to_owned();
        let (weight, weight_edge, weight_gradient) = context.weight("weight", &self.weight).into_parts();
        let weight = contiguous(&part, &weight)?;
        let bias = self.bias.as_ref().map(|bias| context.weight("bias", bias).into_parts());

        let len = sizes.steps.checked_mul(sizes.rows).and_then(|rows| rows.checked_mul(sizes.outputs));
        let mut y = buffers::try_zeros::<E>(&part, len)?;
        let bias_values = bias.as_ref().map(|(bias, ..)| reals::<E>(&part, bias)).transpose()?;
        read_reals::<E, _>(&part, &weight, |weight| {
            read::<E, _>(&part, &x.values, |x| {
                event::forward(SimdLevel::detected(), sizes, x, weight, bias_values.as_deref(), &mut y)
            })
        })?;

        let (wants_input, input_shape) = (x.edge.is_tracked(), x.values.shape().clone());
        let mut shape = input_shape.dims().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = sizes.outputs;
        }
        let mut edges = vec![x.edge, weight_edge];
        let bias_gradient = bias.map(|(_, edge, gradient)| {
            edges.push(edge);
            gradient
        });
        let back = Back { part: part.clone(), sizes, weight, weight_gradient, bias_gradient };
        // Only the weight's gradient needs the input.
        let x = back.weight_gradient.is_wanted().then_some(x.values);
        function(&part, edges, y, shape, move |dy: Vec<E>| back.run(x.as_ref(), wants_input, input_shape, dy))
    }
}

/// What the backward of a linear layer needs, but for its input.
struct Back {
    part: String,
    sizes: Sizes,
    weight: Tensor,
    weight_gradient: WeightGradient,
    bias_gradient: Option<WeightGradient>,
}

impl Back {
    /// The gradients of the input, the weight and, if there is one, the bias.
    fn run<E: Element + kernels::Element>(
        &self,
        x: Option<&Tensor>,
        wants_input: bool,
        input_shape: Shape,
        dy: Vec<E>,
    ) -> Result<Vec<Option<Gradient>>> {
        let (part, sizes) = (&self.part, &self.sizes);
        let mut answers = vec![None, None];
        if let Some(gradient) = &self.bias_gradient {
            answers.push(accumulate::<E>(gradient, |to| {
                add_bias_gradient(sizes.planes(), &dy, to);
                Ok(())
            })?);
        }
        if let Some(x) = x {
            answers[1] = accumulate::<E>(&self.weight_gradient, |to| {
                read::<E, _>(part, x, |x| {
                    event::add_weight_gradient(SimdLevel::detected(), *sizes, x, &dy, to)
                })
            })?;
        }
        if wants_input {
            let dx = read_reals::<E, _>(part, &self.weight, |weight| sizes.input_gradient(weight, &dy))?;
            answers[0] = gradient(dx, input_shape);
        }
        Ok(answers)
    }
}

/// Output features are channels where the input is `[T, N, in]`.
impl ChannelLayer for Linear {
    fn channels(&self) -> usize {
        self.weight.dims().first().copied().unwrap_or_default()
    }

    /// A single feature would be written with another stride than as the last of many, which may be another kernel of the
    /// product: such a layer stays in one piece.
    fn group(&self) -> usize {
        match self.channels() % OUTPUT_GROUP {
            1 => self.channels(),
            _ => OUTPUT_GROUP,
        }
    }

    fn gives_channels_third(&self, input: Option<&[usize]>) -> bool {
        input.is_some_and(|dims| dims.len() == 3)
    }

    fn channels_are_third(&self, dims: &[usize]) -> bool {
        dims.len() == 3 && dims[2] == self.channels()
    }

    fn back(
        &self,
        x: Signal,
        dy: CpuStorage,
        wants_input: bool,
        context: &Context,
    ) -> Result<Option<Gradient>> {
        let part = context.path().to_owned();
        let x = &x.into_dense(&part)?;
        let sizes = self.sizes(&part, x)?;
        let (weight, _, weight_gradient) = context.weight("weight", &self.weight).into_parts();
        let weight = contiguous(&part, &weight)?;
        let bias_gradient = self.bias.as_ref().map(|bias| context.weight("bias", bias).into_parts().2);
        let back = Back { part, sizes, weight, weight_gradient, bias_gradient };
        let read = back.weight_gradient.is_wanted().then_some(x);
        let answers = with_element!(&back.part, x.dtype(), E => {
            back.run(read, wants_input, x.shape().clone(), take::<E>(&back.part, dy)?)
        })?;
        Ok(answers.into_iter().next().flatten())
    }
}
