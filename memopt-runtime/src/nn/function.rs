//! A layer's function: one output, whose gradient comes as a buffer to write over.

use super::element::Element;
use super::input::{take, wrong};
use crate::autograd::{apply, Edge, Gradient, Output};
use crate::module::Signal;
use crate::Result;
use candle_core::Shape;

/// The function `part` with the output `y`; `backward` gets the gradient of `y` by value.
pub(crate) fn function<E: Element>(
    part: &str,
    edges: Vec<Edge>,
    y: Vec<E>,
    shape: impl Into<Shape>,
    backward: impl FnOnce(Vec<E>) -> Result<Vec<Option<Gradient>>> + Send + 'static,
) -> Result<Signal> {
    let (inputs, name) = (edges.len(), part.to_owned());
    let outputs = apply(part, edges, vec![Output::new(E::storage(y), shape)], move |mut gradients| {
        match gradients.pop().flatten() {
            Some(dy) => backward(take::<E>(&name, dy.into_storage()?)?),
            None => Ok(std::iter::repeat_with(|| None).take(inputs).collect()),
        }
    })?;
    let output = outputs.into_iter().next().ok_or_else(|| wrong(part, "its function gave no output"))?;
    Ok(output.into())
}

/// A gradient from the buffer of its elements.
pub(crate) fn gradient<E: Element>(values: Vec<E>, shape: impl Into<Shape>) -> Option<Gradient> {
    Some(Gradient::new(E::storage(values), shape))
}
