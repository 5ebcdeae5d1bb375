//! Convolutions.

mod backward;
pub(super) mod buffers;
mod columns;
mod config;
mod direct;
mod dispatch;
mod footprint;
mod forward;
mod geometry;
mod images;
mod pointwise;
mod simd;
mod spikes;
mod split;
#[cfg(test)]
mod tests;
mod winograd;

pub(crate) use config::DEFAULT_INIT;
pub use config::{Conv1dConfig, Conv2dConfig, ConvConfig, Sizes};

use super::element::{with_element, Element};
use super::function::{function, gradient};
use super::input::{contiguous, read_reals, reals, same_dtypes, take, weight_fits, wrong};
use super::product::OUTPUT_GROUP;
use super::reduce::{accumulate, add_bias_gradient, Planes};
use super::{cast, lanes};
use crate::autograd::{Edge, Gradient};
use crate::compress::kernels::{self, SimdLevel};
use crate::module::{
    rows, ChannelLayer, Checkpointable, Context, Footprint, Incoming, Part, Signal, WeightGradient,
};
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::{CpuStorage, Shape, Tensor};
use candle_nn::{Init, VarBuilder};
use geometry::Geometry;
use images::Window;
use std::ops::Range;

/// `y[o, p] = bias[o] + sum over c, q of weight[o, c, q] x[c, stride p + dilation q - padding]`
///
/// The cross-correlation of each image with `out` kernels: `[T, N, C, ...]` -> `[T, N, out, ...]`, where a size `s` of
/// the image becomes `(s + 2 padding - dilation (kernel - 1) - 1) / stride + 1`; `weight` is `[out, C / groups,
/// ...kernel]`, and output channels see the input channels of their own group. As PyTorch's `Conv1d` and `Conv2d`.
///
/// How it is computed depends on the sizes of one image, its values and the weights, never on how the window is cut. Kernels
/// of 3x3 with stride and dilation 1 and one group:
///
/// - Images of zeros and ones, with 22% of ones at most (50% for the gradient of the weight) and 16 channels or more: by their
///   ones, with additions only.
/// - Others, and the gradient of the input, with 32 channels or more and four tiles or more: by tiles of 2x2 outputs
///   (Winograd), 16 multiplications instead of 36; the gradient of the weight with 16 tiles or more and 32 channels or more
///   on both sides. Results are about as exact as with products in the same precision, but other bits. An image, its
///   gradient or 32 output channels with values of 2^48 or more, infinity or NaN: by products.
///
/// Kernels of 1x1 with stride 1, no padding and one group: images of zeros and ones, with 30% of ones at most and 32 channels or
/// more, by their ones, for blocks of 32 output channels, and a last one of more than 16; for the
/// output, only blocks whose weights are finite. A gradient that is not finite makes NaN of all weights of its output channel there.
///
/// Everything else: by products of the unfolded image, one image at a time, over bands of its rows that take a few hundred
/// kilobytes to unfold. No way takes more than a few megabytes a thread and transformed weights (25/9 of the weights at most,
/// in 3x3 layers), whatever the batch. The function keeps the input (shared) and nothing else; the gradient of the input is
/// written over that of the output where it is not larger. Packed spikes are read as bits; of images that have no kernel for
/// them, a few at a time become floats.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::module::{Checkpointable, Context, Session};
/// use memopt_runtime::nn::{init, Conv2d, Conv2dConfig};
///
/// let variables = VarMap::new();
/// let vb = init::seeded(&variables, 1, DType::F32, &Device::Cpu);
/// let conv = Conv2d::new(2, 16, 3, Conv2dConfig::default().padding(1).bias(false), vb.pp("conv"))?;
/// let x = Tensor::ones((4, 1, 2, 8, 8), DType::F32, &Device::Cpu)?; // [T, N, C, H, W]
/// let y = conv.forward(x.into(), &mut Context::training(&Session::new(0)))?.into_dense("conv")?;
/// assert_eq!(y.dims(), [4, 1, 16, 8, 8]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Conv<const D: usize> {
    weight: Tensor,
    bias: Option<Tensor>,
    config: ConvConfig<D>,
}

/// A convolution over `[T, N, C, L]`; see [`Conv`].
pub type Conv1d = Conv<1>;
/// A convolution over `[T, N, C, H, W]`; see [`Conv`].
pub type Conv2d = Conv<2>;

impl<const D: usize> Conv<D> {
    /// A convolution with the variables `weight` and, unless the configuration says no, `bias` (uniform in
    /// `+-1 / sqrt(fan_in)`).
    ///
    /// # Errors
    /// If there are no channels or no kernel, the groups do not divide the channels, or the variables cannot be had.
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel: impl Sizes<D>,
        config: ConvConfig<D>,
        vb: VarBuilder<'_>,
    ) -> Result<Self> {
        let groups = config.groups;
        if groups == 0 || !in_channels.is_multiple_of(groups) || !out_channels.is_multiple_of(groups) {
            let what = format!("{groups} groups do not divide {in_channels} and {out_channels} channels");
            return Err(wrong(&vb.prefix(), what));
        }
        let mut shape = vec![out_channels, in_channels / groups];
        shape.extend(kernel.sizes());
        weight_fits(&vb.prefix(), &shape)?;
        let fan_in: usize = shape.iter().skip(1).product();
        let weight = vb.get_with_hints(shape, "weight", config.init)?;
        let bound = 1. / (fan_in as f64).sqrt();
        let bias = match config.bias {
            true => Some(vb.get_with_hints(out_channels, "bias", Init::Uniform { lo: -bound, up: bound })?),
            false => None,
        };
        Ok(Conv { weight, bias, config })
    }

    /// A convolution with these tensors, `[out, in / groups, ...kernel]` and `[out]`; `config.bias` is not looked at.
    pub fn from_tensors(weight: Tensor, bias: Option<Tensor>, config: ConvConfig<D>) -> Self {
        Conv { weight, bias, config }
    }

    /// The weight, `[out, in / groups, ...kernel]`.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// The configuration.
    pub fn config(&self) -> &ConvConfig<D> {
        &self.config
    }

    /// The sizes for a window, and the planes of its output.
    fn sizes(&self, part: &str, x: &Window) -> Result<(Geometry, Planes)> {
        same_dtypes(part, x.dtype(), &self.weight)?;
        let dims = x.shape().dims();
        let [steps, images, channels, ref size @ ..] = *dims else {
            return Err(wrong(part, format!("[T, N, C, ...] expected, {dims:?} given")));
        };
        if size.len() != D || self.weight.dims().len() != D + 2 {
            let (x, weight) = (dims, self.weight.dims());
            let what = format!("an input of {} dimensions and a weight of {} expected", D + 3, D + 2);
            return Err(wrong(part, format!("{what}, {x:?} and {weight:?} given")));
        }
        let out = self.weight.dims()[0];
        if self.bias.as_ref().is_some_and(|bias| bias.dims() != [out] || bias.dtype() != x.dtype()) {
            return Err(wrong(part, format!("a bias [{out}] of the weight's dtype expected")));
        }
        let geometry = Geometry::new(&self.config, self.weight.dims(), channels, size);
        let geometry = geometry.map_err(|what| wrong(part, what))?;
        let channels = geometry.groups * geometry.outputs;
        Ok((geometry, Planes { steps, images, channels, size: geometry.output_plane() }))
    }
}

#[diagnostic::do_not_recommend]
impl<const D: usize> Parameters for Conv<D> {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("weight", &self.weight);
        if let Some(bias) = &self.bias {
            visitor.field("bias", bias);
        }
    }

    fn detached(&self) -> Self {
        Conv {
            weight: self.weight.detach(),
            bias: self.bias.as_ref().map(Tensor::detach),
            config: self.config,
        }
    }
}

#[diagnostic::do_not_recommend]
impl<const D: usize> Checkpointable for Conv<D> {
    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        if self.config.groups != 1 {
            return Ok(None);
        }
        let bias = self.bias.as_ref().map(|bias| rows(bias, &channels)).transpose()?;
        Ok(Some(Part::of(&Conv { weight: rows(&self.weight, &channels)?, bias, config: self.config })))
    }

    fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        (self.config.groups == 1).then_some(self)
    }

    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let context = &context.layer();
        let part = context.path();
        let (x, edge) = Window::new(part, x)?;
        let (geometry, planes) = self.sizes(part, &x)?;
        with_element!(part, x.dtype(), E => self.run::<E>(x, edge, context, geometry, planes))
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let [_, _, channels, ref size @ ..] = *x.dims.as_slice() else { return None };
        (size.len() == D).then_some(())?;
        let geometry = Geometry::new(&self.config, self.weight.dims(), channels, size).ok()?;
        let mut output = vec![x.dims[0], x.dims[1], geometry.groups * geometry.outputs];
        output.extend(&geometry.to[2 - D..]);
        Some(footprint::footprint(&geometry, x, output))
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

impl<const D: usize> Conv<D> {
    fn run<E: Element + kernels::Element>(
        &self,
        x: Window,
        edge: Edge,
        context: &Context,
        geometry: Geometry,
        planes: Planes,
    ) -> Result<Signal> {
        let part = context.path().to_owned();
        let (weight, weight_edge, weight_gradient) = context.weight("weight", &self.weight).into_parts();
        let weight = contiguous(&part, &weight)?;
        let bias = self.bias.as_ref().map(|bias| context.weight("bias", bias).into_parts());

        let sizes = [planes.steps, planes.images, planes.channels, planes.size];
        let len = sizes.iter().try_fold(1usize, |len, &size| len.checked_mul(size));
        let mut y = buffers::try_zeros(&part, len)?;
        let bias_values = bias.as_ref().map(|(bias, ..)| reals::<E>(&part, bias)).transpose()?;
        read_reals::<E, _>(&part, &weight, |weight| {
            x.read::<E, _>(&part, geometry.input_image(), |x| {
                forward::forward(SimdLevel::detected(), &geometry, x, weight, bias_values.as_deref(), &mut y)
            })
        })?;

        let mut edges = vec![edge, weight_edge];
        let wants_input = edges[0].is_tracked();
        let bias_gradient = bias.map(|(_, edge, gradient)| {
            edges.push(edge);
            gradient
        });
        let input_shape = x.shape().clone();
        let mut shape = vec![planes.steps, planes.images, planes.channels];
        shape.extend(&geometry.to[2 - D..]);
        let back = Back { part: part.clone(), geometry, planes, weight, weight_gradient, bias_gradient };
        // Only the weight's gradient needs the input.
        let x = back.weight_gradient.is_wanted().then_some(x);
        function(&part, edges, y, shape, move |dy: Vec<E>| back.run(x.as_ref(), wants_input, input_shape, dy))
    }
}

/// What the backward of a convolution needs, but for its input.
struct Back {
    part: String,
    geometry: Geometry,
    planes: Planes,
    weight: Tensor,
    weight_gradient: WeightGradient,
    bias_gradient: Option<WeightGradient>,
}

impl Back {
    /// The gradients of the input, the weight and, if there is one, the bias.
    fn run<E: Element + kernels::Element>(
        &self,
        x: Option<&Window>,
        wants_input: bool,
        input_shape: Shape,
        dy: Vec<E>,
    ) -> Result<Vec<Option<Gradient>>> {
        let mut answers = vec![None, None];
        if let Some(gradient) = &self.bias_gradient {
            answers.push(accumulate::<E>(gradient, |to| {
                add_bias_gradient(self.planes, &dy, to);
                Ok(())
            })?);
        }
        if let Some(x) = x {
            answers[1] = accumulate::<E>(&self.weight_gradient, |to| {
                x.read::<E, _>(&self.part, self.geometry.input_image(), |x| {
                    backward::add_weight_gradient(SimdLevel::detected(), &self.geometry, x, &dy, to)
                })
            })?;
        }
        if wants_input {
            let dx = read_reals::<E, _>(&self.part, &self.weight, |w| {
                backward::input_gradient(SimdLevel::detected(), &self.geometry, w, dy)
            })?;
            answers[0] = gradient(dx, input_shape);
        }
        Ok(answers)
    }
}

impl<const D: usize> ChannelLayer for Conv<D> {
    fn channels(&self) -> usize {
        self.weight.dims().first().copied().unwrap_or_default()
    }

    fn group(&self) -> usize {
        OUTPUT_GROUP
    }

    fn gives_channels_third(&self, _: Option<&[usize]>) -> bool {
        true
    }

    fn back(
        &self,
        x: Signal,
        dy: CpuStorage,
        wants_input: bool,
        context: &Context,
    ) -> Result<Option<Gradient>> {
        let part = context.path().to_owned();
        let (x, _) = Window::new(&part, x)?;
        let (geometry, planes) = self.sizes(&part, &x)?;
        let (weight, _, weight_gradient) = context.weight("weight", &self.weight).into_parts();
        let weight = contiguous(&part, &weight)?;
        let bias_gradient = self.bias.as_ref().map(|bias| context.weight("bias", bias).into_parts().2);
        let back = Back { part, geometry, planes, weight, weight_gradient, bias_gradient };
        let read = back.weight_gradient.is_wanted().then_some(&x);
        let answers = with_element!(&back.part, x.dtype(), E => {
            back.run(read, wants_input, x.shape().clone(), take::<E>(&back.part, dy)?)
        })?;
        Ok(answers.into_iter().next().flatten())
    }
}
