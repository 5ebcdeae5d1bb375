//! The joins as functions: they keep what their backward needs and no more, and hand gradients on by value.
//!
//! Candle's own operations would add each gradient to zeros. Its sums, products and copies are used on the values, so that
//! the outputs are its bits.

use crate::autograd::{apply, Edge, Gradient, Output};
use crate::{storage, Error, Result};
use candle_core::Tensor;

/// The third dimension of `[T, N, C, ...]`.
const CHANNELS: usize = 2;

/// `a + b + ...`, from the first to the last. Nothing is kept.
pub(super) fn sum(part: &str, tensors: &[Tensor]) -> Result<Tensor> {
    on_cpu(part, tensors)?;
    let mut values = tensors.iter().map(Tensor::detach);
    let first = values.next().map_or_else(|| Tensor::new(0f32, &candle_core::Device::Cpu), Ok)?;
    let y = values.try_fold(first, |sum, x| sum + x)?;
    let tracked: Vec<bool> = tensors.iter().map(Tensor::track_op).collect();
    // The last one that wants it gets the gradient's buffer, the others a copy each.
    let last = tracked.iter().rposition(|&tracked| tracked);
    function(part, tensors, y, move |dy| {
        let mut answers: Vec<Option<Gradient>> = Vec::with_capacity(tracked.len());
        for (index, &tracked) in tracked.iter().enumerate() {
            let is_copied = tracked && Some(index) != last;
            answers.push(if is_copied {
                Some(Gradient::new(storage::owned(&dy)?, dy.shape()))
            } else {
                None
            });
        }
        if let Some(answer) = last.and_then(|last| answers.get_mut(last)) {
            *answer = Some(owned(dy)?);
        }
        Ok(answers)
    })
}

/// `a * b`, element by element. Each is kept if the other wants a gradient.
pub(super) fn product(part: &str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    on_cpu(part, &[a, b])?;
    let (of_a, of_b) = (a.detach(), b.detach());
    let y = (&of_a * &of_b)?;
    let (for_a, for_b) = (a.track_op().then_some(of_b), b.track_op().then_some(of_a));
    function(part, &[a.clone(), b.clone()], y, move |dy| {
        let da = for_a.map(|b| owned((&dy * b)?)).transpose()?;
        let db = for_b.map(|a| owned((dy * a)?)).transpose()?;
        Ok(vec![da, db])
    })
}

/// `(1 - a) * b`, element by element. Each is kept if the other wants a gradient.
pub(super) fn inverted_product(part: &str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    on_cpu(part, &[a, b])?;
    let (of_a, of_b) = (a.detach(), b.detach());
    let y = (of_a.affine(-1., 1.)? * &of_b)?;
    let (for_a, for_b) = (a.track_op().then_some(of_b), b.track_op().then_some(of_a));
    function(part, &[a.clone(), b.clone()], y, move |dy| {
        let da = for_a.map(|b| owned((&dy * b)?.affine(-1., 0.)?)).transpose()?;
        let db = for_b.map(|a| owned((dy * a.affine(-1., 1.)?)?)).transpose()?;
        Ok(vec![da, db])
    })
}

/// Side by side along the channels. Nothing is kept.
pub(super) fn concatenation(part: &str, tensors: &[Tensor]) -> Result<Tensor> {
    on_cpu(part, tensors)?;
    let values: Vec<Tensor> = tensors.iter().map(Tensor::detach).collect();
    let y = Tensor::cat(&values, CHANNELS)?;
    let widths: Vec<usize> = values.iter().map(|x| x.dim(CHANNELS)).collect::<candle_core::Result<_>>()?;
    function(part, tensors, y, move |dy| {
        let mut start = 0;
        let part = |&width: &usize| {
            let part = dy.narrow(CHANNELS, start, width)?;
            start += width;
            Ok(Some(Gradient::new(storage::owned(&part)?, part.shape())))
        };
        widths.iter().map(part).collect()
    })
}

/// An error of `part` unless all tensors are on the CPU.
fn on_cpu<T: std::borrow::Borrow<Tensor>>(part: &str, tensors: &[T]) -> Result<()> {
    match tensors.iter().all(|tensor| tensor.borrow().device().is_cpu()) {
        true => Ok(()),
        false => Err(Error::UnsupportedDevice { function: part.to_owned(), what: "this join".into() }),
    }
}

/// The function of these inputs with the output `y`; `backward` gets a gradient that nobody else has.
fn function(
    part: &str,
    inputs: &[Tensor],
    y: Tensor,
    backward: impl FnOnce(Tensor) -> Result<Vec<Option<Gradient>>> + Send + 'static,
) -> Result<Tensor> {
    let (edges, count) = (inputs.iter().map(Edge::to).collect(), inputs.len());
    let shape = y.shape().clone();
    // A join of one branch has the buffer of the branch.
    let values = if count == 1 { storage::owned(&y)? } else { storage::taken(y)? };
    let output = Output::new(values, shape);
    let outputs = apply(part, edges, vec![output], move |mut gradients| match gradients.pop().flatten() {
        Some(dy) => {
            let shape = dy.shape().clone();
            backward(storage::into_tensor(dy.into_storage()?, shape, false))
        }
        None => Ok(std::iter::repeat_with(|| None).take(count).collect()),
    })?;
    outputs.into_iter().next().ok_or_else(|| candle_core::Error::Msg("a join gave no output".into()).into())
}

/// A gradient from a tensor that nobody else has.
fn owned(gradient: Tensor) -> Result<Gradient> {
    let shape = gradient.shape().clone();
    Ok(Gradient::new(storage::taken(gradient)?, shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    /// The gradient of the one side that wants it, whichever that is.
    #[test]
    fn products_with_one_tracked_side() {
        let of = |values: [f32; 3]| Tensor::new(&values, &Device::Cpu).unwrap();
        let (a, b) = ([0., 2., 3.], [5., 7., 11.]);
        type Join = fn(&str, &Tensor, &Tensor) -> Result<Tensor>;
        let cases: [(Join, [[f32; 3]; 2]); 2] =
            [(product, [b, a]), (inverted_product, [b.map(|b| -b), a.map(|a| 1. - a)])];
        for (join, expected) in cases {
            for (side, expected) in expected.into_iter().enumerate() {
                let variable = Var::from_tensor(&of([a, b][side])).unwrap();
                let mut sides = [of(a), of(b)];
                sides[side] = variable.as_tensor().clone();
                let y = join("join", &sides[0], &sides[1]).unwrap();
                let gradients = y.sum_all().unwrap().backward().unwrap();
                assert_eq!(gradients.get(&variable).unwrap().to_vec1::<f32>().unwrap(), expected);
                assert!(gradients.get(&sides[1 - side]).is_none());
            }
        }
    }
}
