//! The images of a window: floats, or bits of which those images become floats that have no kernel for bits.

use super::buffers::grow;
use super::spikes::SpikeMasks;
use crate::autograd::Edge;
use crate::compress::kernels::{self, unpack_to, SimdLevel};
use crate::compress::PackedSpikes;
use crate::module::Signal;
use crate::nn::element::Element;
use crate::nn::input::{contiguous, read};
use crate::Result;
use candle_core::{DType, Shape, Tensor};
use std::ops::Range;

/// Bytes of floats that are unpacked at a time, about, where as many as one likes will do.
pub(super) const UNPACKED: usize = 2 << 20;

/// A window as it came into the layer, out of its graph.
#[derive(Debug, Clone)]
pub(super) enum Window {
    /// A contiguous tensor.
    Dense(Tensor),
    Packed(PackedSpikes),
}

impl Window {
    /// The window, and where its gradient goes.
    pub fn new(part: &str, x: Signal) -> Result<(Self, Edge)> {
        if let Signal::Packed(spikes) = x {
            let edge = Edge::untracked(spikes.shape(), spikes.dtype());
            return Ok((Window::Packed(spikes), edge));
        }
        let x = x.into_dense(part)?;
        Ok((Window::Dense(contiguous(part, &x)?), Edge::to(&x)))
    }

    pub fn shape(&self) -> &Shape {
        match self {
            Window::Dense(tensor) => tensor.shape(),
            Window::Packed(spikes) => spikes.shape(),
        }
    }

    pub fn dtype(&self) -> DType {
        match self {
            Window::Dense(tensor) => tensor.dtype(),
            Window::Packed(spikes) => spikes.dtype(),
        }
    }

    /// Runs `f` on its images, which have `image` elements each of the window's own type `E`.
    pub fn read<E: Element, T>(
        &self,
        part: &str,
        image: usize,
        f: impl FnOnce(Images<'_, E>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Window::Dense(tensor) => read::<E, _>(part, tensor, |values| f(Images::of_floats(values, image))),
            Window::Packed(spikes) => {
                let count = spikes.shape().elem_count() / image;
                f(Images { values: Values::Bits(spikes.words(), spikes.start()), image, count })
            }
        }
    }
}

/// Images that follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Images<'a, E> {
    values: Values<'a, E>,
    /// Elements of an image.
    image: usize,
    count: usize,
}

#[derive(Debug, Clone, Copy)]
enum Values<'a, E> {
    Floats(&'a [E]),
    /// Bits, and which of them is the first element's.
    Bits(&'a [u64], usize),
}

impl<'a, E: Element> Images<'a, E> {
    /// Images of `image` elements each.
    pub fn of_floats(values: &'a [E], image: usize) -> Self {
        Images { values: Values::Floats(values), image, count: values.len() / image }
    }

    /// Number of images.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The floats of an image, where it need not be unpacked for them.
    pub fn as_floats(&self, index: usize) -> Option<&'a [E]> {
        match self.values {
            Values::Floats(values) => values.get(index * self.image..(index + 1) * self.image),
            Values::Bits(..) => None,
        }
    }

    /// The bits of an image, and which of them is its first element's, where they are bits.
    pub fn as_bits(&self, index: usize) -> Option<(&'a [u64], usize)> {
        match self.values {
            Values::Bits(words, start) => Some((words, start + index * self.image)),
            Values::Floats(_) => None,
        }
    }

    /// Some of the images.
    pub fn range(&self, images: Range<usize>) -> Self {
        let (first, end) = (images.start * self.image, images.end * self.image);
        let values = match self.values {
            Values::Floats(values) => Values::Floats(&values[first..end]),
            Values::Bits(words, start) => Values::Bits(words, start + first),
        };
        Images { values, image: self.image, count: images.len() }
    }

    /// Ranges of images whose floats take little: all of them if they are floats.
    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = Range<usize>> {
        let count = self.count;
        let step = match self.values {
            Values::Floats(_) => count,
            Values::Bits(..) => UNPACKED / (self.image * size_of::<E>()),
        };
        let step = step.max(1);
        (0..count.div_ceil(step)).map(move |piece| piece * step..((piece + 1) * step).min(count))
    }
}

impl<'a, E: Element + kernels::Element> Images<'a, E> {
    /// Where the spikes of image `index` are, in rows of `width`; `None` if an element is neither `+0` nor exactly one.
    pub fn masks(&self, level: SimdLevel, index: usize, width: usize) -> Option<SpikeMasks> {
        let first = index * self.image;
        match self.values {
            Values::Floats(values) => {
                SpikeMasks::from_floats(level, &values[first..first + self.image], width)
            }
            Values::Bits(words, start) => {
                Some(SpikeMasks::from_bits(words, start + first, self.image, width))
            }
        }
    }

    /// The floats of the images for which `wanted` is true, each in its place among all; those of others may be anything.
    pub fn floats<'s>(
        &self,
        level: SimdLevel,
        wanted: impl Fn(usize) -> bool,
        scratch: &'s mut Vec<E>,
    ) -> &'s [E]
    where
        'a: 's,
    {
        let (words, start) = match self.values {
            Values::Floats(values) => return values,
            Values::Bits(words, start) => (words, start),
        };
        let len = self.count * self.image;
        grow(scratch, len);
        let images = scratch[..len].chunks_exact_mut(self.image).enumerate();
        for (index, image) in images.filter(|(index, _)| wanted(*index)) {
            unpack_to(level, words, start + index * self.image, image);
        }
        &scratch[..len]
    }
}

#[cfg(test)]
impl<'a, E: Element> Images<'a, E> {
    /// Images of `image` elements each, a bit an element from bit `start` on.
    pub fn of_bits(words: &'a [u64], start: usize, count: usize, image: usize) -> Self {
        Images { values: Values::Bits(words, start), image, count }
    }
}
