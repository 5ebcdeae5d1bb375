//! Dropout whose mask can be had again.

use super::element::{with_element, Element, Real};
use super::function::{function, gradient};
use super::input::{contiguous, not_float, read, wrong};
use super::random::Stream;
use crate::autograd::Edge;
use crate::module::{Checkpointable, Context, Footprint, Incoming, RandomKey, Signal};
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::Tensor;
use rayon::prelude::*;

#[cfg(test)]
mod tests;

/// Elements that one task masks.
const TASK: usize = 1 << 14;

/// Sets elements to zero with probability `p` while training, and divides the others by `1 - p`:
///
/// ```text
/// y[t, i] = x[t, i] / (1 - p)   if u[t, i] >= p, else 0
/// ```
///
/// `x` is `[T, N, ...]`, of any float dtype. In an evaluation it is the identity. With `p = 1` all elements are zero.
///
/// # The mask
///
/// `u[t, i]`, uniform in [0, 1), is number `(start + t) n + i` (`n` elements a step; `start`: the window's first step) of a
/// SplitMix64 stream whose state is a hash of the session's seed, the number of the training forward and the layer's path.
/// So a recompute draws the same mask, time chunks draw parts of one mask, layers and forwards draw different ones, and
/// backward needs to keep nothing of it. With [`one_mask_for_all_steps`](Dropout::one_mask_for_all_steps), `u[t, i]` is
/// number `i`: an element is dropped in all steps or in none, as SpikingJelly's `Dropout` does (Lee et al., 2020).
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use memopt_runtime::module::{Checkpointable, Context, Session};
/// use memopt_runtime::nn::Dropout;
///
/// let x = Tensor::ones((2, 1000), DType::F32, &Device::Cpu)?;
/// let dropout = Dropout::new(0.25)?;
/// let session = Session::new(1);
/// let y = dropout.forward((&x).into(), &mut Context::training(&session))?.into_dense("")?;
/// let mean = y.mean_all()?.to_scalar::<f32>()?;
/// assert!((mean - 1.).abs() < 0.1);
/// let y = dropout.forward((&x).into(), &mut Context::evaluation(&session))?.into_dense("")?;
/// assert_eq!(y.mean_all()?.to_scalar::<f32>()?, 1.);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    p: f64,
    one_mask: bool,
}

impl Dropout {
    /// Dropout with probability `p`, for each element of each time step.
    ///
    /// # Errors
    /// If `p` is not in [0, 1].
    pub fn new(p: f64) -> Result<Self> {
        if !(0. ..=1.).contains(&p) {
            return Err(wrong("Dropout", format!("p is {p}; a probability is in [0, 1]")));
        }
        Ok(Dropout { p, one_mask: false })
    }

    /// The same mask in all time steps.
    pub fn one_mask_for_all_steps(self) -> Self {
        Dropout { one_mask: true, ..self }
    }

    /// The probability that an element is dropped.
    pub fn p(&self) -> f64 {
        self.p
    }

    fn mask(&self, key: &RandomKey, x: &Tensor, part: &str) -> Result<Mask> {
        let Some((_, step)) = x.dims().split_first() else {
            return Err(wrong(part, "the input is a scalar; give it a window `[T, N, ...]`"));
        };
        let step = step.iter().product();
        Ok(Mask {
            stream: Stream::of(key),
            // u < p for u = bits / 2^53.
            threshold: (self.p * (1u64 << 53) as f64).ceil() as u64,
            scale: if self.p < 1. { 1. / (1. - self.p) } else { 0. },
            first: if self.one_mask { 0 } else { key.start as u64 * step as u64 },
            period: if self.one_mask { step } else { usize::MAX },
        })
    }
}

/// All that a mask depends on.
#[derive(Debug, Clone, Copy)]
struct Mask {
    stream: Stream,
    /// Elements whose 53 bits are below it are dropped.
    threshold: u64,
    scale: f64,
    /// Number of the first element in the stream.
    first: u64,
    /// After how many elements the mask begins again.
    period: usize,
}

impl Mask {
    /// Masks in place.
    fn apply<E: Element>(&self, values: &mut [E]) {
        let scale = E::Real::from_f64(self.scale);
        // Each element's number is its own, so that the mask does not depend on how the elements are shared out.
        values.par_chunks_mut(TASK).enumerate().for_each(|(task, values)| {
            let mut place = (task * TASK) % self.period;
            for value in values {
                // Without a branch: which way it would go is random.
                let kept = E::store(value.load() * scale);
                let is_dropped = self.stream.bits(self.first + place as u64) < self.threshold;
                *value = if is_dropped { E::ZERO } else { kept };
                place += 1;
                if place == self.period {
                    place = 0;
                }
            }
        });
    }
}

fn masked<E: Element>(part: &str, x: &Tensor, mask: Mask) -> Result<Signal> {
    let shape = x.shape().clone();
    let mut y = read(part, &contiguous(part, x)?, |x: &[E]| Ok(x.to_vec()))?;
    mask.apply(&mut y);
    function(part, vec![Edge::to(x)], y, shape.clone(), move |mut dx: Vec<E>| {
        mask.apply(&mut dx);
        Ok(vec![gradient(dx, shape)])
    })
}

#[diagnostic::do_not_recommend]
impl Checkpointable for Dropout {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let context = &context.layer();
        if !context.is_training() {
            return Ok(x);
        }
        let part = super::neuron::name_of(context, "Dropout");
        let x = x.into_dense(&part)?;
        if !x.dtype().is_float() {
            return Err(not_float(&part, x.dtype()));
        }
        if self.p == 0. {
            return Ok(x.into());
        }
        let mask = self.mask(&context.random_key()?, &x, &part)?;
        with_element!(&part, x.dtype(), E => masked::<E>(&part, &x, mask))
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        Some(if self.p == 0. { Footprint::view(x.dims.clone()) } else { Footprint::elementwise(x) })
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

/// No parameters.
#[diagnostic::do_not_recommend]
impl Parameters for Dropout {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        *self
    }
}
