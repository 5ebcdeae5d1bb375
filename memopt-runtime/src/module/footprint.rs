//! What running a layer takes, known before it runs.

use candle_core::DType;

/// What comes into a layer, without its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming {
    /// Dimensions, `[T, N, ...]`.
    pub dims: Vec<usize>,
    /// Type of the elements.
    pub dtype: DType,
    /// Where all elements are zeros and ones: how many are ones.
    pub densities: Option<Densities>,
    /// Threads that work at once, each in a workspace of its own.
    pub threads: usize,
}

impl Incoming {
    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size_in_bytes()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Number of images, `T N`.
    pub fn images(&self) -> usize {
        self.dims.iter().take(2).product()
    }

    /// The same for other dimensions, of which nothing is known.
    pub fn with_dims(&self, dims: impl Into<Vec<usize>>) -> Self {
        Incoming { dims: dims.into(), densities: None, ..self.clone() }
    }
}

/// Shares of ones among the elements of the images of a window: `0 <= least <= mean <= most <= 1`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Densities {
    /// Of the image with the fewest.
    pub least: f64,
    /// Of all images.
    pub mean: f64,
    /// Of the image with the most.
    pub most: f64,
}

impl Densities {
    /// Those of two windows together; each counts as much as the other.
    pub fn and(self, other: Self) -> Self {
        Densities {
            least: self.least.min(other.least),
            mean: (self.mean + other.mean) / 2.,
            most: self.most.max(other.most),
        }
    }
}

/// What a layer takes when it runs in training, by formulas over the dimensions of its input: nothing is run or measured.
///
/// Bytes beside those of input and output, which whoever runs the layer counts. The gradients of its weights are not in it
/// either: they are as large as the weights.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Footprint {
    /// Dimensions of the output, whose elements are of the input's type.
    pub output: Vec<usize>,
    /// Whether the output is the input's buffer.
    pub is_view: bool,
    /// Whether the function keeps its input for backward.
    pub keeps_input: bool,
    /// Bytes that it keeps besides.
    pub keeps: usize,
    /// Whether the gradient of the input is written over that of the output.
    pub is_in_place: bool,
    /// What the forward takes.
    pub forward: Work,
    /// What the backward takes, with the gradients of input and weights. Its scratch is that of all but the gradient of the
    /// input.
    pub backward: Work,
    /// Bytes that exist while the gradient of the input is computed, beside it and that of the output.
    pub input_scratch: usize,
    /// Bytes of the state that goes from one time chunk to the next: the potentials of neurons.
    pub state: usize,
}

/// What one pass takes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Bytes that exist while it runs.
    pub scratch: usize,
    /// Bytes of floats that exist besides of an input that comes as bits, where bits are not worked on.
    pub unpacks: usize,
    /// Multiplications with an addition, or what takes as long.
    pub products: f64,
    /// Bytes that are read and written.
    pub traffic: f64,
}

impl Work {
    /// Work that moves so many bytes and does little else.
    pub fn moving(traffic: usize) -> Self {
        Work { traffic: traffic as f64, ..Work::default() }
    }

    /// The same with `factor` times as many products and bytes moved.
    pub fn times(self, factor: f64) -> Self {
        Work { products: self.products * factor, traffic: self.traffic * factor, ..self }
    }

    /// The same where so many bytes of an input that comes as bits are unpacked at a time.
    pub fn unpacking(self, unpacks: usize) -> Self {
        Work { unpacks, ..self }
    }

    /// The same with so many bytes of scratch.
    pub fn with_scratch(self, scratch: usize) -> Self {
        Work { scratch, ..self }
    }
}

impl Footprint {
    /// That of a layer without weights that works element by element and keeps nothing: one pass over input and output.
    pub fn elementwise(x: &Incoming) -> Self {
        let work = Work::moving(2 * x.bytes());
        Footprint {
            output: x.dims.clone(),
            is_in_place: true,
            forward: work,
            backward: work,
            ..Self::default()
        }
    }

    /// That of a layer that gives its input in other dimensions.
    pub fn view(output: Vec<usize>) -> Self {
        Footprint { output, is_view: true, is_in_place: true, ..Self::default() }
    }

    /// The same of a layer that keeps its input.
    pub fn keeping_input(self) -> Self {
        Footprint { keeps_input: true, ..self }
    }
}
