//! Times of layers on this machine, on request: they take the place of the cost table's.
//!
//! Each distinct layer runs by itself, forward and backward, on values like those that flowed into it: the order of a few
//! steps' time. What is measured is a pace, by how much a layer takes longer than the table says, so that chunks of it are
//! scaled with it.

use super::cost::CostTable;
use super::outline::{layers, Body, Node, Pace};
use super::trace::Traced;
use crate::autograd::{backward_from, Gradient};
use crate::module::{Part, Session, Signal, Step, Work};
use crate::nn::Stream;
use crate::Result;
use candle_core::{Device, Tensor, Var};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Runs of a layer; the fastest counts.
const RUNS: usize = 3;

/// Nanoseconds of forward and backward of each layer, in the order in which they run: the same layers on all processes of a
/// group. Layers that are alike are timed once.
pub(super) fn times(traced: &Traced) -> Result<Vec<u64>> {
    let mut known: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut all = Vec::new();
    for node in layers(&traced.nodes) {
        let times = match kind(node) {
            None => [0; 2],
            Some(kind) => match known.get(&kind) {
                Some(&times) => times,
                None => {
                    let times = times_of(node, &traced.device)?.map(|time| time.as_nanos() as u64);
                    known.insert(kind, times);
                    times
                }
            },
        };
        all.extend(times);
    }
    Ok(all)
}

/// Sets the paces of all layers by their [`times`].
pub(super) fn set_paces(traced: &mut Traced, costs: &CostTable, times: &[u64]) {
    apply(&mut traced.nodes, costs, &mut times.chunks_exact(2));
}

/// What tells layers apart that take different times.
fn kind(node: &Node) -> Option<String> {
    let (Step::Part { part, .. }, Body::Layer { footprint, .. }) = (&node.step, &node.body) else {
        return None;
    };
    let can_run = node.input.dtype.is_float() && !footprint.is_view;
    let shapes: Vec<Vec<usize>> = part.parameters().iter().map(|(_, x)| x.dims().to_vec()).collect();
    can_run.then(|| format!("{} {:?} {footprint:?} {shapes:?}", part.type_name(), node.input))
}

fn apply<'t>(nodes: &mut [Node], costs: &CostTable, times: &mut impl Iterator<Item = &'t [u64]>) {
    for node in nodes {
        match &mut node.body {
            Body::Chain(inside) => apply(inside, costs, times),
            Body::Join { branches, .. } => branches.iter_mut().for_each(|branch| apply(branch, costs, times)),
            Body::Layer { footprint, .. } => {
                let of_layer = times.next();
                let pace = |work: Work, place: usize| {
                    let time = of_layer.and_then(|times| times.get(place)).copied().unwrap_or_default();
                    let predicted = costs.seconds(work);
                    match time > 0 && predicted > 0. {
                        true => time as f64 * 1e-9 / predicted,
                        false => 1.,
                    }
                };
                node.pace =
                    Pace { forward: pace(footprint.forward, 0), backward: pace(footprint.backward, 1) };
            }
        }
    }
}

/// Forward and backward of a layer that runs by itself.
fn times_of(node: &Node, device: &Device) -> Result<[Duration; 2]> {
    let Step::Part { part, .. } = &node.step else { return Ok([Duration::ZERO; 2]) };
    let x = Var::from_tensor(&like(node, device)?)?;
    let mut best = [Duration::MAX; 2];
    for _ in 0..RUNS {
        let times = once(part, &x)?;
        best.iter_mut().zip(times).for_each(|(best, time)| *best = time.min(*best));
    }
    Ok(best)
}

fn once(part: &Part, x: &Var) -> Result<[Duration; 2]> {
    let start = Instant::now();
    let rehearsal = Session::new(0);
    let outputs =
        rehearsal.rehearse(|context| part.forward(Signal::from(x.as_tensor()), context))?.into_tensors()?;
    let forward = start.elapsed();
    let mut roots = Vec::with_capacity(outputs.len());
    for y in outputs.into_iter().filter(|y| y.track_op() && y.dtype().is_float()) {
        let gradient = Gradient::from(y.ones_like()?);
        roots.push((y, gradient));
    }
    let start = Instant::now();
    drop(backward_from(roots)?);
    Ok([forward, start.elapsed()])
}

/// An input like the one that was seen: as many ones, or values in [-1, 1).
fn like(node: &Node, device: &Device) -> Result<Tensor> {
    let input = &node.input;
    let stream = Stream::new(0, 0, "a layer's input");
    let values: Vec<f32> = (0..input.elements() as u64)
        .map(|index| {
            let random = stream.uniform(index);
            match input.densities {
                Some(densities) => f32::from(u8::from(random < densities.mean)),
                None => (2. * random - 1.) as f32,
            }
        })
        .collect();
    Ok(Tensor::from_vec(values, input.dims.as_slice(), device)?.to_dtype(input.dtype)?)
}
