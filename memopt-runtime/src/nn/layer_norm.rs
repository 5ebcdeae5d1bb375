//! Layer norm.

use super::element::{with_element, Element, Real};
use super::function::{function, gradient};
use super::input::{read, reals, wrong, Input};
use super::reduce::{accumulate, sum};
use crate::module::{Checkpointable, Context, Footprint, Incoming, Signal, Work};
use crate::parameters::{Parameters, Visitor};
use crate::Result;
use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use rayon::prelude::*;

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias`, over the trailing dimensions
///
/// `[T, N, ..., *normalized]` -> the same shape; mean and (biased) variance are those of each `normalized` block;
/// `weight` and `bias` have its shape (Ba, Kiros, Hinton 2016; as PyTorch's `LayerNorm`). The function keeps its input
/// (shared) and nothing else; the gradient of the input is written over that of the output.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    /// Weight and bias; candle-nn has layers with a weight only.
    pub(super) affine: Option<(Tensor, Option<Tensor>)>,
    pub(super) normalized: Vec<usize>,
    pub(super) eps: f64,
    /// Whether the mean is taken away; if not, `variance` is the mean square: candle-nn's `remove_mean`.
    pub(super) removes_mean: bool,
}

/// Configuration of [`LayerNorm`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LayerNormConfig {
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
    /// Whether there are a weight and a bias; true by default.
    pub affine: bool,
}

impl Default for LayerNormConfig {
    fn default() -> Self {
        LayerNormConfig { eps: 1e-5, affine: true }
    }
}

impl LayerNormConfig {
    /// Sets what is added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Sets whether there are a weight and a bias.
    pub fn affine(mut self, affine: bool) -> Self {
        self.affine = affine;
        self
    }
}

impl LayerNorm {
    /// A norm over trailing dimensions `normalized` with the variables `weight` (ones) and `bias` (zeros).
    ///
    /// # Errors
    /// If the variables cannot be had.
    pub fn new(normalized: &[usize], config: LayerNormConfig, vb: VarBuilder<'_>) -> Result<Self> {
        let affine = match config.affine {
            true => Some((
                vb.get_with_hints(normalized, "weight", Init::Const(1.))?,
                Some(vb.get_with_hints(normalized, "bias", Init::Const(0.))?),
            )),
            false => None,
        };
        Ok(LayerNorm { affine, normalized: normalized.to_vec(), eps: config.eps, removes_mean: true })
    }

    /// The weight, of the normalized shape.
    pub fn weight(&self) -> Option<&Tensor> {
        self.affine.as_ref().map(|(weight, _)| weight)
    }

    /// The bias, of the normalized shape.
    pub fn bias(&self) -> Option<&Tensor> {
        self.affine.as_ref().and_then(|(_, bias)| bias.as_ref())
    }

    fn check(&self, part: &str, x: &Tensor) -> Result<Rows> {
        let (dims, normalized) = (x.dims(), &self.normalized);
        if normalized.is_empty() || dims.len() < normalized.len() + 2 || !dims.ends_with(normalized) {
            let what = format!("an input [T, N, ...] that ends with {normalized:?} expected, {dims:?} given");
            return Err(wrong(part, what));
        }
        let fits = |weight: &Tensor| weight.dims() == normalized && weight.dtype() == x.dtype();
        if !self.weight().is_none_or(fits) || !self.bias().is_none_or(fits) {
            let dtype = x.dtype().as_str();
            return Err(wrong(
                part,
                format!("weight and bias must be {normalized:?} of the input's dtype, {dtype}"),
            ));
        }
        let rows = dims[1..dims.len() - normalized.len()].iter().product();
        let size = normalized.iter().product();
        Ok(Rows { steps: dims[0], rows, size, eps: self.eps, removes_mean: self.removes_mean })
    }

    fn run<E: Element>(&self, x: Input, context: &Context, rows: Rows) -> Result<Signal> {
        let part = context.path().to_owned();
        let shape = x.values.shape().clone();
        let wants_input = x.edge.is_tracked();
        let (mut values, mut edges, mut gradients) = (Vec::new(), vec![x.edge], Vec::new());
        for (name, weight) in [("weight", self.weight()), ("bias", self.bias())] {
            if let Some(weight) = weight {
                let (value, edge, gradient) = context.weight(name, weight).into_parts();
                values.push(value);
                edges.push(edge);
                gradients.push(gradient);
            }
        }
        let numbers = values.iter().map(|value| reals::<E>(&part, value)).collect::<Result<Vec<_>>>()?;
        let affine =
            numbers.split_first().map(|(weight, bias)| (weight.as_slice(), bias.first().map(Vec::as_slice)));
        let y = read::<E, _>(&part, &x.values, |x| Ok(rows.forward(x, affine)))?;

        let (x, scale) = (x.values, values.into_iter().next());
        function(&part.clone(), edges, y, shape.clone(), move |mut dy: Vec<E>| {
            let scale = scale.map(|scale| reals::<E>(&part, &scale)).transpose()?;
            read::<E, _>(&part, &x, |x| {
                let moments = rows.moments(x);
                let mut of_weights = Vec::new();
                if let Some(weight) = gradients.first() {
                    of_weights.push(accumulate::<E>(weight, |to| {
                        rows.add_gradient(&dy, to, |row, column| {
                            let (mean, inverse) = moments[row];
                            (x[row * rows.size + column].load() - mean) * inverse
                        });
                        Ok(())
                    })?);
                }
                if let Some(bias) = gradients.get(1) {
                    of_weights.push(accumulate::<E>(bias, |to| {
                        rows.add_gradient(&dy, to, |_, _| E::Real::ONE);
                        Ok(())
                    })?);
                }
                let of_input = match wants_input {
                    true => {
                        rows.input_gradient(x, &moments, scale.as_deref(), &mut dy);
                        gradient(dy, shape)
                    }
                    false => None,
                };
                Ok(std::iter::once(of_input).chain(of_weights).collect())
            })
        })
    }
}

#[diagnostic::do_not_recommend]
impl Parameters for LayerNorm {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        if let Some((weight, bias)) = &self.affine {
            visitor.field("weight", weight);
            visitor.field("bias", bias);
        }
    }

    fn detached(&self) -> Self {
        LayerNorm { affine: self.affine.detached(), ..self.clone() }
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for LayerNorm {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let context = &context.layer();
        let x = Input::new(x, context)?;
        let rows = self.check(context.path(), &x.values)?;
        with_element!(context.path(), x.values.dtype(), E => self.run::<E>(x, context, rows))
    }

    /// Two numbers are kept for each row.
    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let (forward, backward) = (Work::moving(3 * x.bytes()), Work::moving(5 * x.bytes()));
        Some(Footprint { forward, backward, ..Footprint::elementwise(x).keeping_input() })
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

/// Weight and bias, where there are.
type Affine<'a, E> = Option<(&'a [<E as Element>::Real], Option<&'a [<E as Element>::Real]>)>;

/// `steps` times `rows` blocks of `size` elements.
#[derive(Debug, Clone, Copy)]
struct Rows {
    steps: usize,
    rows: usize,
    size: usize,
    eps: f64,
    removes_mean: bool,
}

impl Rows {
    /// Mean (zero where it is not removed) and inverse deviation of a row.
    fn moments_of<E: Element>(&self, x: &[E]) -> (E::Real, E::Real) {
        let size = self.size as f64;
        let mean = if self.removes_mean { sum(x.len(), |i| x[i].load().to_f64()) / size } else { 0. };
        let variance = sum(x.len(), |i| (x[i].load().to_f64() - mean).powi(2)) / size;
        (E::Real::from_f64(mean), E::Real::from_f64(1. / (variance + self.eps).sqrt()))
    }

    fn moments<E: Element>(&self, x: &[E]) -> Vec<(E::Real, E::Real)> {
        x.par_chunks(self.size.max(1)).map(|x| self.moments_of(x)).collect()
    }

    fn forward<E: Element>(&self, x: &[E], affine: Affine<'_, E>) -> Vec<E> {
        let mut y = vec![E::ZERO; x.len()];
        y.par_chunks_mut(self.size.max(1)).zip(x.par_chunks(self.size.max(1))).for_each(|(y, x)| {
            let (mean, inverse) = self.moments_of(x);
            let normalized = x.iter().map(|x| (x.load() - mean) * inverse);
            match affine {
                Some((weight, Some(bias))) => y
                    .iter_mut()
                    .zip(normalized)
                    .zip(weight.iter().zip(bias))
                    .for_each(|((y, x), (weight, bias))| *y = E::store(x * *weight + *bias)),
                Some((weight, None)) => y
                    .iter_mut()
                    .zip(normalized)
                    .zip(weight)
                    .for_each(|((y, x), weight)| *y = E::store(x * *weight)),
                None => y.iter_mut().zip(normalized).for_each(|(y, x)| *y = E::store(x)),
            }
        });
        y
    }

    /// Adds `sum over rows of dy * factor` of each time step to `to`, the last step first.
    fn add_gradient<E: Element>(
        &self,
        dy: &[E],
        to: &mut [E::Real],
        factor: impl Fn(usize, usize) -> E::Real + Sync,
    ) {
        /// Columns that one task handles.
        const COLUMNS: usize = 64;
        to.par_chunks_mut(COLUMNS).enumerate().for_each(|(block, to)| {
            for step in (0..self.steps).rev() {
                let mut sums = [0f64; COLUMNS];
                for row in (step * self.rows..(step + 1) * self.rows).rev() {
                    let first = block * COLUMNS;
                    let dy = &dy[row * self.size + first..][..to.len()];
                    for ((index, sum), dy) in sums.iter_mut().enumerate().zip(dy) {
                        *sum += dy.load().to_f64() * factor(row, first + index).to_f64();
                    }
                }
                to.iter_mut().zip(sums).for_each(|(to, sum)| *to += Real::from_f64(sum));
            }
        });
    }

    /// `dy` becomes the gradient of the input.
    fn input_gradient<E: Element>(
        &self,
        x: &[E],
        moments: &[(E::Real, E::Real)],
        weight: Option<&[E::Real]>,
        dy: &mut [E],
    ) {
        let scale = |column: usize| weight.map_or(E::Real::ONE, |weight| weight[column]);
        let rows = dy.par_chunks_mut(self.size.max(1)).zip(x.par_chunks(self.size.max(1))).zip(moments);
        rows.for_each(|((dy, x), &(mean, inverse))| {
            let normalized = |i: usize| (x[i].load() - mean) * inverse;
            let scaled = |dy: &[E], i: usize| dy[i].load() * scale(i);
            let size = self.size as f64;
            let of_dy = match self.removes_mean {
                true => E::Real::from_f64(sum(dy.len(), |i| scaled(dy, i).to_f64()) / size),
                false => E::Real::ZERO,
            };
            let of_normalized = sum(dy.len(), |i| scaled(dy, i).to_f64() * normalized(i).to_f64()) / size;
            let of_normalized = E::Real::from_f64(of_normalized);
            for i in 0..dy.len() {
                dy[i] = E::store(inverse * ((scaled(dy, i) - of_dy) - normalized(i) * of_normalized));
            }
        });
    }
}
