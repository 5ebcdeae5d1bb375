//! Builds the graph of one function.

use super::cell::{Backward, Cell};
use super::depth::depth_limit;
use super::edge::Edge;
use super::gradient::Gradient;
use super::join::Arguments;
use super::live::{self, Live};
use super::output::{Output, OutputNode};
use super::registry::{Producer, Registration};
use super::run::Run;
use crate::{storage, Error, Result};
use candle_core::{DType, Device, Shape, Tensor};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// A differentiable function: inputs by their edges, outputs by value, one backward closure.
///
/// `backward` gets the gradient of each output (`None` for those that the loss does not depend on) and gives one for each
/// input, in order; for an input that is not tracked it may give `None` or anything. It owns whatever it needs; what it
/// owns lives until its backward is done, or until the graph is dropped. `name` appears in errors.
///
/// An example is in the [module's documentation](self::super); what may be relied on is listed there.
///
/// # Errors
/// If a buffer does not fit its shape, if a tracked input is not on the CPU, or if the chain of functions gets longer than
/// [`depth_limit`]. Errors of the closure arrive from
/// `loss.backward()`; [`Error::find`] gets them back typed.
pub fn apply<B>(
    name: impl Into<String>,
    inputs: Vec<Edge>,
    outputs: Vec<Output>,
    backward: B,
) -> Result<Vec<Tensor>>
where
    B: FnOnce(Vec<Option<Gradient>>) -> Result<Vec<Option<Gradient>>> + Send + 'static,
{
    build(name.into(), inputs, outputs, Box::new(backward), false)
}

/// [`apply`]; a leaf stands at the beginning of a graph.
pub(super) fn build(
    name: String,
    inputs: Vec<Edge>,
    outputs: Vec<Output>,
    backward: Backward,
    is_leaf: bool,
) -> Result<Vec<Tensor>> {
    check(&name, &inputs, &outputs)?;
    let arguments = Arguments::of(&inputs);
    if arguments.is_empty() {
        return Ok(outputs.into_iter().map(Output::into_plain).collect());
    }
    let limit = depth_limit();
    // No chain is longer than the number of functions.
    let depth = (live::count() >= limit).then(|| 1 + inputs.iter().map(Edge::depth).max().unwrap_or(0));
    if depth.is_some_and(|depth| depth > limit) {
        return Err(Error::TooDeep { function: name, limit });
    }
    let first = outputs.first().map_or((Shape::from(0), DType::F32), |o| (o.shape.clone(), o.dtype()));
    let cell = Arc::new(Cell::new(name, inputs, outputs.len(), backward));
    let alive = Arc::new(OnceLock::new());
    let run = Run { cell: cell.clone(), _live: alive.clone() };
    let token = arguments.join(&cell, &Device::Cpu)?.apply_op1(run)?;
    // Just made, so it is empty; the same below.
    let _ = alive.set(Live::new(&token, depth, first));
    outputs
        .into_iter()
        .enumerate()
        .map(|(index, output)| {
            // Candle's backward does not go through integers.
            if output.dtype().is_int() {
                return Ok(output.into_plain());
            }
            let (registration, shape) = (Arc::new(OnceLock::new()), output.shape.clone());
            let tensor = token.apply_op1(OutputNode {
                output: Mutex::new(Some(output)),
                cell: cell.clone(),
                index,
                _registration: registration.clone(),
            })?;
            let producer = Producer::new(token.clone(), cell.clone(), index, shape, is_leaf);
            let _ = registration.set(Registration::new(&tensor, Arc::new(producer)));
            Ok(tensor)
        })
        .collect()
}

fn check(name: &str, inputs: &[Edge], outputs: &[Output]) -> Result<()> {
    if let Some(edge) = inputs.iter().find(|edge| edge.is_tracked() && !edge.device.is_cpu()) {
        return Err(Error::UnsupportedDevice {
            function: name.to_owned(),
            what: format!("a function of tensors on {:?}", edge.device.location()),
        });
    }
    for output in outputs {
        let got = storage::len(&output.storage);
        if storage::elements(&output.shape) != Some(got) {
            return Err(Error::StorageLength { function: name.to_owned(), got, shape: output.shape.clone() });
        }
    }
    Ok(())
}
