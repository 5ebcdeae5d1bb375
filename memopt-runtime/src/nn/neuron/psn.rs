//! The parallel spiking neuron.

use super::firing::check_surrogate;
use super::name_of;
use super::tiles::{for_each, tiles, Columns, TILE};
use crate::autograd::{Edge, Gradient};
use crate::module::{
    Checkpointable, Context, Footprint, Incoming, Session, Signal, Weight, WeightGradient, Work,
};
use crate::nn::element::{with_element, Element, Real};
use crate::nn::function::{function, gradient};
use crate::nn::input::{contiguous, read, reals, wrong};
use crate::nn::random::Stream;
use crate::nn::reduce::sum;
use crate::nn::Surrogate;
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::{CpuStorage, DType, Device, Tensor, WithDType};

/// Parallel spiking neurons (Fang et al., NeurIPS 2023): no potential is carried and nothing is reset; each time step sees
/// all the others, through a matrix that is learned:
///
/// ```text
/// h = W x + b                       W: [T, T], b: [T, 1] (the negative threshold of each step), x: [T, N, ...]
/// s[t] = 1 if h[t] >= 0, else 0
/// ```
///
/// `T` is that of the weights; the window cannot be cut into chunks of time. The sums over the steps of `x` in `W x` ascend,
/// and `b` is added last. Gradients of `W` and `b` are summed over the neurons in f64, in a fixed order. Backward puts the
/// [`Surrogate`]'s derivative, [`Surrogate::atan`] if not set, for `ds/dh`. Equations, defaults and gradients are those of
/// SpikingJelly's `PSN`.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use memopt_runtime::nn::Psn;
///
/// let w = Tensor::new(&[[1f32, 0.], [1., 1.]], &Device::Cpu)?;
/// let b = Tensor::new(&[[-1f32], [-1.]], &Device::Cpu)?;
/// let x = Tensor::new(&[[0.6f32], [0.6]], &Device::Cpu)?; // h = -0.4, 0.2
/// assert_eq!(Psn::new(w, b)?.window(&x)?.to_vec2::<f32>()?, [[0.], [1.]]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Psn {
    weight: Tensor,
    bias: Tensor,
    surrogate: Surrogate,
}

/// Neurons that are computed together.
const BLOCK: usize = 64;

/// At most so many partial sums of the weights' gradients.
const PARTS: usize = 32;

impl Psn {
    /// Neurons for windows of T steps: `weight` is `[T, T]`, `bias` is `[T, 1]`, both of the same float dtype.
    ///
    /// # Errors
    /// If shapes or dtypes are others.
    pub fn new(weight: Tensor, bias: Tensor) -> Result<Self> {
        let fits = match *weight.dims() {
            [rows, columns] => rows == columns && bias.dims() == [rows, 1],
            _ => false,
        };
        let float = matches!(weight.dtype(), DType::F32 | DType::F64 | DType::BF16 | DType::F16);
        if !fits || !float || bias.dtype() != weight.dtype() {
            let what = format!(
                "the weight is {:?} of {:?}, the bias {:?} of {:?}; give floats [T, T] and [T, 1]",
                weight.dims(),
                weight.dtype(),
                bias.dims(),
                bias.dtype()
            );
            return Err(wrong("Psn", what));
        }
        Ok(Psn { weight, bias, surrogate: Surrogate::atan() })
    }

    /// Values to begin with, as in SpikingJelly: `W` uniform in `±1 / sqrt(T)`, `b = -1`. They depend on `seed` and `name`
    /// only. Make variables of them for [`new`](Self::new).
    ///
    /// # Errors
    /// Those of Candle.
    pub fn initial(steps: usize, seed: u64, name: &str, dtype: DType) -> Result<(Tensor, Tensor)> {
        let (stream, bound) = (Stream::new(seed, 0, name), 1. / (steps as f64).sqrt());
        let count = steps * steps;
        let weight: Vec<f64> = (0..count).map(|i| (2. * stream.uniform(i as u64) - 1.) * bound).collect();
        let weight = Tensor::from_vec(weight, (steps, steps), &Device::Cpu)?.to_dtype(dtype)?;
        Ok((weight, Tensor::full(-1f64, (steps, 1), &Device::Cpu)?.to_dtype(dtype)?))
    }

    /// What stands for the step function's derivative; [`Surrogate::atan`] if not set.
    #[must_use]
    pub fn surrogate(mut self, surrogate: Surrogate) -> Self {
        self.surrogate = surrogate;
        self
    }

    /// The number of time steps.
    pub fn steps(&self) -> usize {
        self.bias.elem_count()
    }

    /// Spikes of the window `x`, `[T, N, ...]`. Differentiable through `x`, weight and bias.
    ///
    /// # Errors
    /// If `x` is not a window of T steps of floats on the CPU.
    pub fn window(&self, x: &Tensor) -> Result<Tensor> {
        // Where no model runs, gradients of the weights go along their own edges.
        self.run("Psn", x, &Context::evaluation(&Session::new(0)))?.into_dense("Psn")
    }

    fn run(&self, part: &str, x: &Tensor, context: &Context) -> Result<Signal> {
        check_surrogate(part, &self.surrogate)?;
        let steps = self.steps();
        if x.dims().first() != Some(&steps) {
            let what = format!("the input is {:?}; this neuron's weight is for windows of {steps} steps, `[{steps}, N, ...]`", x.dims());
            return Err(wrong(part, what));
        }
        let weight = context.weight("weight", &self.weight);
        let bias = context.weight("bias", &self.bias);
        with_element!(part, x.dtype(), E => self.run_in::<E>(part, x, weight, bias))
    }

    fn run_in<E: Element>(&self, part: &str, x: &Tensor, weight: Weight, bias: Weight) -> Result<Signal> {
        let shape = x.shape().clone();
        let x_edge = Edge::to(x);
        let x = contiguous(part, x)?;
        let (w, w_edge, w_gradient) = weight.into_parts();
        let (b, b_edge, b_gradient) = bias.into_parts();
        let (w, b) = (numbers::<E::Real>(part, &w)?, numbers::<E::Real>(part, &b)?);
        let mixing = Mixing { w, b, surrogate: self.surrogate };

        let neurons: usize = shape.dims()[1..].iter().product();
        let width = neurons.div_ceil(PARTS).next_multiple_of(BLOCK).max(TILE);
        let mut spikes = vec![E::ZERO; shape.elem_count()];
        read(part, &x, |data: &[E]| {
            let x = Columns { data, neurons };
            let parts = parts(&mut spikes, neurons, width);
            for_each(parts, data.len(), |(): &mut (), part| mixing.forward(x, part));
            Ok(())
        })?;
        let (edges, name) = (vec![x_edge, w_edge, b_edge], part.to_owned());
        function(part, edges, spikes, shape.clone(), move |mut dx: Vec<E>| {
            let sums = read(&name, &x, |data: &[E]| {
                let x = Columns { data, neurons };
                let parts = parts(&mut dx, neurons, width);
                Ok(for_each(parts, data.len(), |(): &mut (), part| mixing.backward(x, part)))
            })?;
            let (dw, db): (Vec<_>, Vec<_>) = sums.into_iter().unzip();
            Ok(vec![gradient(dx, shape), finish(&w_gradient, &dw), finish(&b_gradient, &db)])
        })
    }
}

/// Some neurons of a window that is written.
struct Part<'a, E> {
    /// Their elements at each time step.
    rows: Vec<&'a mut [E]>,
    /// The first of them, and how many there are.
    start: usize,
    n: usize,
}

/// The window `data`, `[T, M]`, in parts of `width` neurons.
fn parts<E>(data: &mut [E], neurons: usize, width: usize) -> impl Iterator<Item = Part<'_, E>> {
    let rows = tiles(data, neurons, width).into_iter().enumerate();
    rows.map(move |(index, rows)| Part { rows, start: index * width, n: width.min(neurons - index * width) })
}

/// The learned matrix and thresholds, in the type that is computed with.
struct Mixing<R> {
    w: Vec<R>,
    b: Vec<R>,
    surrogate: Surrogate,
}

impl<R: Real> Mixing<R> {
    /// `h[t]` of a block of neurons.
    fn potential<E: Element<Real = R>>(&self, x: Columns<'_, E>, t: usize, start: usize, h: &mut [R]) {
        let (steps, n) = (self.b.len(), h.len());
        h.fill(R::ZERO);
        for (k, &w) in self.w[t * steps..][..steps].iter().enumerate() {
            for (h, x) in h.iter_mut().zip(x.at(k, start, n)) {
                *h += w * x.load();
            }
        }
        h.iter_mut().for_each(|h| *h += self.b[t]);
    }

    fn forward<E: Element<Real = R>>(&self, x: Columns<'_, E>, part: Part<'_, E>) {
        let Part { mut rows, start, n: neurons } = part;
        let mut h = [R::ZERO; BLOCK];
        for from in (0..neurons).step_by(BLOCK) {
            let h = &mut h[..BLOCK.min(neurons - from)];
            for (t, row) in rows.iter_mut().enumerate() {
                self.potential(x, t, start + from, h);
                for (s, h) in row[from..].iter_mut().zip(&*h) {
                    *s = if *h >= R::ZERO { E::ONE } else { E::ZERO };
                }
            }
        }
    }

    /// `part.rows` go from the gradient of the spikes to that of `x`; gives its part of the gradients of `w` and `b`.
    fn backward<E: Element<Real = R>>(&self, x: Columns<'_, E>, part: Part<'_, E>) -> (Vec<f64>, Vec<f64>) {
        let Part { mut rows, start, n: neurons } = part;
        let steps = self.b.len();
        let (mut dw, mut db) = (vec![0.; steps * steps], vec![0.; steps]);
        // dL/dh of one block, and one row of dL/dx.
        let mut dhs = vec![R::ZERO; steps * BLOCK];
        let mut sum_x = [R::ZERO; BLOCK];
        for from in (0..neurons).step_by(BLOCK) {
            let n = BLOCK.min(neurons - from);
            for (t, row) in rows.iter().enumerate() {
                let dh = &mut dhs[t * BLOCK..][..n];
                self.potential(x, t, start + from, dh);
                self.surrogate.derivatives(dh);
                dh.iter_mut().zip(&row[from..]).for_each(|(dh, ds)| *dh *= ds.load());
                db[t] += sum(n, |i| dh[i].to_f64());
                for (k, dw) in dw[t * steps..][..steps].iter_mut().enumerate() {
                    let x = x.at(k, start + from, n);
                    *dw += sum(n, |i| dh[i].to_f64() * x[i].load().to_f64());
                }
            }
            for (k, row) in rows.iter_mut().enumerate() {
                let sum_x = &mut sum_x[..n];
                sum_x.fill(R::ZERO);
                for (t, dh) in dhs.chunks_exact(BLOCK).enumerate() {
                    let w = self.w[t * steps + k];
                    sum_x.iter_mut().zip(dh).for_each(|(sum, dh)| *sum += w * *dh);
                }
                row[from..].iter_mut().zip(&*sum_x).for_each(|(dx, sum)| *dx = E::store(*sum));
            }
        }
        (dw, db)
    }
}

/// A weight's values in the type that is computed with.
fn numbers<R: Real>(part: &str, weight: &Tensor) -> Result<Vec<R>> {
    reals::<R>(part, &weight.to_dtype(R::DTYPE)?)
}

/// Adds the tiles' sums, in their order.
fn finish(gradient: &WeightGradient, parts: &[Vec<f64>]) -> Option<Gradient> {
    fn add<E: WithDType>(total: &mut [E], parts: &[Vec<f64>]) {
        for (i, total) in total.iter_mut().enumerate() {
            *total += E::from_f64(parts.iter().map(|part| part[i]).sum());
        }
    }
    if !gradient.is_wanted() {
        return None;
    }
    let mut total = gradient.begin();
    match &mut total {
        CpuStorage::F32(total) => add(total, parts),
        CpuStorage::F64(total) => add(total, parts),
        CpuStorage::BF16(total) => add(total, parts),
        CpuStorage::F16(total) => add(total, parts),
        // The weights are floats: `Psn::new`.
        _ => {}
    }
    gradient.finish(total)
}

#[diagnostic::do_not_recommend]
impl Checkpointable for Psn {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let context = &context.layer();
        let part = name_of(context, "Psn");
        self.run(&part, &x.into_dense(&part)?, context)
    }

    /// Every step adds up all of them; backward does so twice.
    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let work = |passes: usize| Work {
            products: (passes * x.elements() * self.steps()) as f64,
            ..Work::moving((1 + passes) * x.bytes())
        };
        Some(Footprint { forward: work(1), backward: work(3), ..Footprint::elementwise(x).keeping_input() })
    }

    /// Each step depends on all others.
    fn is_time_chunkable(&self) -> bool {
        false
    }
}

/// Paths: `weight`, `bias`.
#[diagnostic::do_not_recommend]
impl Parameters for Psn {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("weight", &self.weight);
        visitor.field("bias", &self.bias);
    }

    fn detached(&self) -> Self {
        Psn { weight: self.weight.detached(), bias: self.bias.detached(), surrogate: self.surrogate }
    }
}
