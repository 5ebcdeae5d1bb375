//! The linear layer.

use super::conv::DEFAULT_INIT;
use super::element::{with_element, Element};
use super::function::{function, gradient};
use super::input::{contiguous, read, read_reals, reals, same_dtype, take, wrong, Input};
use super::product::{multiply, Matrix, OUTPUT_GROUP};
use super::reduce::{accumulate, add_bias_gradient, Planes};
use crate::autograd::Gradient;
use crate::module::{rows, ChannelLayer, Checkpointable, Context, Part, Signal, WeightGradient};
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::{CpuStorage, Shape, Tensor};
use candle_nn::{Init, VarBuilder};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of the input, or of the weight's gradient, that one product takes.
const ROWS: usize = 64;

/// `y = x weight^T + bias`, over the last dimension
///
/// `[T, N, ..., in]` -> `[T, N, ..., out]`; `weight` is `[out, in]`. As PyTorch's `Linear`. Products are made for one
/// time step at a time; the function keeps the input (shared) and nothing else.
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
    /// If the variables cannot be had.
    pub fn new(
        in_features: usize,
        out_features: usize,
        config: LinearConfig,
        vb: VarBuilder<'_>,
    ) -> Result<Self> {
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
        if width != inputs || inputs == 0 || out == 0 {
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

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

impl Linear {
    fn run<E: Element>(&self, x: Input, context: &Context, sizes: Sizes) -> Result<Signal> {
        let part = context.path().to_owned();
        let (weight, weight_edge, weight_gradient) = context.weight("weight", &self.weight).into_parts();
        let weight = contiguous(&part, &weight)?;
        let bias = self.bias.as_ref().map(|bias| context.weight("bias", bias).into_parts());

        let mut y = vec![E::ZERO; sizes.steps * sizes.rows * sizes.outputs];
        let bias_values = bias.as_ref().map(|(bias, ..)| reals::<E>(&part, bias)).transpose()?;
        read_reals::<E, _>(&part, &weight, |weight| {
            read::<E, _>(&part, &x.values, |x| sizes.forward(x, weight, bias_values.as_deref(), &mut y))
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
    fn run<E: Element>(
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
                read::<E, _>(part, x, |x| sizes.add_weight_gradient(x, &dy, to))
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

/// Sizes of the products; `rows` of each time step.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    steps: usize,
    rows: usize,
    inputs: usize,
    outputs: usize,
}

impl Sizes {
    /// The output as planes of one element.
    fn planes(&self) -> Planes {
        Planes { steps: self.steps, images: self.rows, channels: self.outputs, size: 1 }
    }

    /// Runs `f` on every block of rows of every time step: rows of `from` and of `to`, whose widths are given.
    fn blocks<E: Element>(
        &self,
        (from, from_width): (&[E], usize),
        (to, to_width): (&mut [E], usize),
        f: impl Fn(usize, &[E::Real], &mut [E::Real]) -> Result<()> + Sync,
    ) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let steps = to.par_chunks_mut(self.rows * to_width).zip(from.par_chunks(self.rows * from_width));
        steps.try_for_each(|(to, from)| {
            to.par_chunks_mut(ROWS * to_width).zip(from.par_chunks(ROWS * from_width)).try_for_each_init(
                || (Vec::new(), Vec::new()),
                |(read, written), (to, from)| {
                    let from = E::reals(from, read);
                    E::fill(to, written, |to| f(from.len() / from_width, from, to))
                },
            )
        })
    }

    fn forward<E: Element>(
        &self,
        x: &[E],
        weight: &[E::Real],
        bias: Option<&[E::Real]>,
        y: &mut [E],
    ) -> Result<()> {
        let (inputs, outputs) = (self.inputs, self.outputs);
        self.blocks((x, inputs), (y, outputs), |rows, x, y| {
            let x = Matrix { values: x, row: inputs, column: 1 };
            for first in (0..outputs).step_by(OUTPUT_GROUP) {
                let columns = OUTPUT_GROUP.min(outputs - first);
                let weight = Matrix { values: &weight[first * inputs..], row: 1, column: inputs };
                multiply((rows, columns, inputs), (&mut y[first..], outputs), false, x, weight)?;
            }
            if let Some(bias) = bias {
                y.chunks_exact_mut(outputs)
                    .for_each(|y| y.iter_mut().zip(bias).for_each(|(y, bias)| *y += *bias));
            }
            Ok(())
        })
    }

    fn input_gradient<E: Element>(&self, weight: &[E::Real], dy: &[E]) -> Result<Vec<E>> {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let mut dx = vec![E::ZERO; self.steps * self.rows * inputs];
        let weight = Matrix { values: weight, row: inputs, column: 1 };
        self.blocks((dy, outputs), (&mut dx, inputs), |rows, dy, dx| {
            let dy = Matrix { values: dy, row: outputs, column: 1 };
            multiply((rows, inputs, outputs), (dx, inputs), false, dy, weight)
        })?;
        Ok(dx)
    }

    /// Adds the gradient of the weight to `to`, one time step after the other, the last first.
    fn add_weight_gradient<E: Element>(&self, x: &[E], dy: &[E], to: &mut [E::Real]) -> Result<()> {
        let (rows, inputs, outputs) = (self.rows, self.inputs, self.outputs);
        if rows == 0 {
            return Ok(());
        }
        to.par_chunks_mut(ROWS * inputs).enumerate().try_for_each_init(
            || (Vec::new(), Vec::new()),
            |(x_scratch, dy_scratch), (block, to)| {
                for (x, dy) in x.chunks_exact(rows * inputs).zip(dy.chunks_exact(rows * outputs)).rev() {
                    let (x, dy) = (E::reals(x, x_scratch), E::reals(dy, dy_scratch));
                    let dy = Matrix { values: &dy[block * ROWS..], row: 1, column: outputs };
                    let x = Matrix { values: x, row: inputs, column: 1 };
                    multiply((to.len() / inputs, inputs, rows), (&mut *to, inputs), true, dy, x)?;
                }
                Ok(())
            },
        )
    }
}
