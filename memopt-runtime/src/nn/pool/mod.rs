//! Pools over the two trailing dimensions of `[T, N, C, H, W]`.

mod average;
mod maximum;
mod windows;

use super::conv::Sizes;
use super::element::with_element;
use super::input::{wrong, Input};
use crate::autograd::Gradient;
use crate::module::{Checkpointable, Context, Footprint, Incoming, LinearMap, Signal, Work};
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use windows::Windows;

/// How a window becomes one pixel.
#[derive(Clone, Copy)]
enum Kind {
    Average,
    Maximum,
}

fn pool(
    kind: Kind,
    x: Signal,
    context: &Context,
    windows: impl FnOnce([usize; 2]) -> Result<Windows, String>,
) -> Result<Signal> {
    let (part, x) = (context.path(), Input::new(x, context)?);
    let (windows, shape) = windows_of(part, x.values.dims(), windows)?;
    with_element!(part, x.values.dtype(), E => match kind {
        Kind::Average => average::average::<E>(part, x, windows, shape),
        Kind::Maximum => maximum::maximum::<E>(part, x, windows, shape),
    })
}

/// What a pool takes: two bytes for each output are kept where the maximum's place is.
fn footprint(
    kind: Kind,
    x: &Incoming,
    windows: impl FnOnce([usize; 2]) -> Result<Windows, String>,
) -> Option<Footprint> {
    let (_, output) = windows_of("pool", &x.dims, windows).ok()?;
    let output = x.with_dims(output);
    let work = Work::moving(x.bytes() + output.bytes());
    let keeps = match kind {
        Kind::Average => 0,
        Kind::Maximum => 2 * output.elements(),
    };
    Some(Footprint { output: output.dims, keeps, forward: work, backward: work, ..Footprint::default() })
}

/// The windows of images of these dimensions, and the dimensions of the output.
fn windows_of(
    part: &str,
    dims: &[usize],
    windows: impl FnOnce([usize; 2]) -> Result<Windows, String>,
) -> Result<(Windows, Vec<usize>)> {
    let &[steps, images, channels, height, width] = dims else {
        return Err(wrong(part, format!("[T, N, C, H, W] expected, {dims:?} given")));
    };
    let windows = windows([height, width]).map_err(|what| wrong(part, what))?;
    let [height, width] = windows.to();
    Ok((windows, vec![steps, images, channels, height, width]))
}

/// What only pools by means have: they are linear.
macro_rules! linear_map {
    (Maximum, $layer:ty, $self:ident, $size:ident => $windows:expr) => {};
    (Average, $layer:ty, $self:ident, $size:ident => $windows:expr) => {
        impl LinearMap for $layer {
            fn output_dims(&$self, input: &[usize]) -> Result<Vec<usize>> {
                Ok(windows_of(stringify!($layer), input, |$size| $windows)?.1)
            }

            fn transposed(&$self, dy: Gradient, input: &[usize]) -> Result<Gradient> {
                let part = stringify!($layer);
                let (windows, _) = windows_of(part, input, |$size| $windows)?;
                average::transposed(part, &windows, dy, input.into())
            }
        }
    };
}

/// Itself, if it is linear.
macro_rules! as_linear_map {
    (Maximum, $layer:expr) => {
        None
    };
    (Average, $layer:expr) => {
        Some($layer)
    };
}

/// A layer without parameters.
macro_rules! layer {
    ($layer:ident, $kind:ident, $self:ident, $size:ident => $windows:expr) => {
        impl Parameters for $layer {
            fn visit_parameters(&self, _: &mut Visitor<'_>) {}

            fn detached(&self) -> Self {
                self.clone()
            }
        }

        impl Checkpointable for $layer {
            fn footprint(&$self, x: &Incoming) -> Option<Footprint> {
                footprint(Kind::$kind, x, |$size| $windows)
            }

            fn forward(&$self, x: Signal, context: &mut Context) -> Result<Signal> {
                pool(Kind::$kind, x, context, |$size| $windows)
            }

            fn linear_map(&$self) -> Option<&dyn LinearMap> {
                as_linear_map!($kind, $self)
            }

            fn is_time_chunkable(&self) -> bool {
                true
            }
        }

        linear_map!($kind, $layer, $self, $size => $windows);
    };
}

/// `y[i, j] = mean of x[stride i + (0..kernel), stride j + (0..kernel)]`
///
/// `[T, N, C, H, W]` -> `[T, N, C, (H - kernel) / stride + 1, (W - kernel) / stride + 1]`, as PyTorch's `AvgPool2d`
/// without padding. The function keeps nothing but sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvgPool2d {
    kernel: [usize; 2],
    stride: [usize; 2],
}

impl AvgPool2d {
    /// A pool whose windows are as far apart as they are large.
    pub fn new(kernel: impl Sizes<2>) -> Self {
        let kernel = kernel.sizes();
        AvgPool2d { kernel, stride: kernel }
    }

    /// Sets the distance of the windows.
    pub fn stride(mut self, stride: impl Sizes<2>) -> Self {
        self.stride = stride.sizes();
        self
    }
}
layer!(AvgPool2d, Average, self, size => Windows::sliding(size, self.kernel, self.stride, [0, 0]));

/// `y[i, j] = max of x[stride i - padding + (0..kernel), stride j - padding + (0..kernel)]`
///
/// `[T, N, C, H, W]` -> `[T, N, C, (H + 2 padding - kernel) / stride + 1, ...]`, as PyTorch's `MaxPool2d`: padding never
/// is the maximum, and of equal values the first gets the gradient. The function keeps two bytes for each output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxPool2d {
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl MaxPool2d {
    /// A pool whose windows are as far apart as they are large.
    pub fn new(kernel: impl Sizes<2>) -> Self {
        let kernel = kernel.sizes();
        MaxPool2d { kernel, stride: kernel, padding: [0, 0] }
    }

    /// Sets the distance of the windows.
    pub fn stride(mut self, stride: impl Sizes<2>) -> Self {
        self.stride = stride.sizes();
        self
    }

    /// Sets how far windows reach beyond the image; at most half of the kernel.
    pub fn padding(mut self, padding: impl Sizes<2>) -> Self {
        self.padding = padding.sizes();
        self
    }
}
layer!(MaxPool2d, Maximum, self, size => Windows::sliding(size, self.kernel, self.stride, self.padding));

/// `y[i, j] = mean of x[floor(i H / h) .. ceil((i + 1) H / h), floor(j W / w) .. ceil((j + 1) W / w)]`
///
/// `[T, N, C, H, W]` -> `[T, N, C, h, w]` for any image, as PyTorch's `AdaptiveAvgPool2d`. The function keeps nothing but
/// sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdaptiveAvgPool2d {
    to: [usize; 2],
}

impl AdaptiveAvgPool2d {
    /// A pool to images of this size.
    pub fn new(to: impl Sizes<2>) -> Self {
        AdaptiveAvgPool2d { to: to.sizes() }
    }
}
layer!(AdaptiveAvgPool2d, Average, self, size => Windows::adaptive(size, self.to));

/// `y[i, j] = max of x[floor(i H / h) .. ceil((i + 1) H / h), floor(j W / w) .. ceil((j + 1) W / w)]`
///
/// `[T, N, C, H, W]` -> `[T, N, C, h, w]` for any image, as PyTorch's `AdaptiveMaxPool2d`. The function keeps two bytes for
/// each output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdaptiveMaxPool2d {
    to: [usize; 2],
}

impl AdaptiveMaxPool2d {
    /// A pool to images of this size.
    pub fn new(to: impl Sizes<2>) -> Self {
        AdaptiveMaxPool2d { to: to.sizes() }
    }
}
layer!(AdaptiveMaxPool2d, Maximum, self, size => Windows::adaptive(size, self.to));
