//! Configuration of convolutions.

use candle_nn::init::{FanInOut, NonLinearity, NormalOrUniform};
use candle_nn::Init;

/// One size for each of `D` dimensions: a number for all of them, or an array.
pub trait Sizes<const D: usize> {
    /// The sizes.
    fn sizes(self) -> [usize; D];
}

impl<const D: usize> Sizes<D> for usize {
    fn sizes(self) -> [usize; D] {
        [self; D]
    }
}

impl<const D: usize> Sizes<D> for [usize; D] {
    fn sizes(self) -> [usize; D] {
        self
    }
}

impl Sizes<2> for (usize, usize) {
    fn sizes(self) -> [usize; 2] {
        [self.0, self.1]
    }
}

/// Uniform in `+-1 / sqrt(fan_in)`, the default of PyTorch's linear and convolution layers.
pub(crate) const DEFAULT_INIT: Init = Init::Kaiming {
    dist: NormalOrUniform::Uniform,
    fan: FanInOut::FanIn,
    // 1 / sqrt(3)
    non_linearity: NonLinearity::ExplicitGain(0.577_350_269_189_625_8),
};

/// Configuration of a convolution over `D` dimensions: `ConvConfig::default().stride(2).padding(1)`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ConvConfig<const D: usize> {
    /// Distance between two positions of the kernel; 1 by default.
    pub stride: [usize; D],
    /// Zeros added at each side; none by default.
    pub padding: [usize; D],
    /// Distance between two elements of the kernel; 1 by default.
    pub dilation: [usize; D],
    /// Groups of channels that are convolved separately; 1 by default.
    pub groups: usize,
    /// Whether there is a bias; true by default.
    pub bias: bool,
    /// How the weight begins; by default uniform in `+-1 / sqrt(fan_in)`.
    pub init: Init,
}

/// Configuration of [`Conv1d`](super::Conv1d).
pub type Conv1dConfig = ConvConfig<1>;
/// Configuration of [`Conv2d`](super::Conv2d).
pub type Conv2dConfig = ConvConfig<2>;

impl<const D: usize> Default for ConvConfig<D> {
    fn default() -> Self {
        ConvConfig {
            stride: [1; D],
            padding: [0; D],
            dilation: [1; D],
            groups: 1,
            bias: true,
            init: DEFAULT_INIT,
        }
    }
}

impl<const D: usize> ConvConfig<D> {
    /// Sets the distance between two positions of the kernel.
    pub fn stride(mut self, stride: impl Sizes<D>) -> Self {
        self.stride = stride.sizes();
        self
    }

    /// Sets the number of zeros at each side.
    pub fn padding(mut self, padding: impl Sizes<D>) -> Self {
        self.padding = padding.sizes();
        self
    }

    /// Sets the distance between two elements of the kernel.
    pub fn dilation(mut self, dilation: impl Sizes<D>) -> Self {
        self.dilation = dilation.sizes();
        self
    }

    /// Sets the number of groups.
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

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
