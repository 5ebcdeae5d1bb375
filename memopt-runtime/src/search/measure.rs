//! Times of layers on this machine, on request: they take the place of the cost table's.
//!
//! Each distinct layer runs by itself, forward and backward, on values like those that flowed into it: the order of a few
//! steps' time. What is measured is a pace, by how much a layer takes longer than the table says, so that chunks of it are
//! scaled with it.

use super::cost::CostTable;
use super::outline::{Body, Node, Pace};
use super::trace::Traced;
use crate::autograd::{backward_from, Gradient};
use crate::dist::Agreement;
use crate::module::{Part, Session, Signal, Step, Work};
use crate::nn::Stream;
use crate::Result;
use candle_core::{Device, Tensor, Var};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Runs of a layer; the fastest counts.
const RUNS: usize = 3;

/// Times all layers and sets their paces; in a group of processes, to those of the slowest.
pub(super) fn set_paces(
    traced: &mut Traced,
    costs: &CostTable,
    agreement: Option<&dyn Agreement>,
) -> Result<()> {
    let mut kinds = BTreeMap::new();
    collect(&traced.nodes, &mut kinds);
    let mut nanoseconds = Vec::with_capacity(2 * kinds.len());
    for node in kinds.values() {
        let [forward, backward] = times(node, &traced.device)?;
        nanoseconds.extend([forward, backward].map(|time| time.as_nanos() as u64));
    }
    if let Some(agreement) = agreement {
        nanoseconds = agreement.largest(&nanoseconds)?;
    }
    let paces: BTreeMap<String, Pace> = kinds
        .into_iter()
        .zip(nanoseconds.chunks_exact(2))
        .map(|((kind, node), times)| {
            let pace = |work: Work, time: Option<&u64>| {
                let (predicted, time) = (costs.seconds(work), time.map_or(0., |&time| time as f64 * 1e-9));
                if predicted > 0. && time > 0. {
                    time / predicted
                } else {
                    1.
                }
            };
            let footprint = node.footprint();
            let forward = pace(footprint.forward, times.first());
            (kind, Pace { forward, backward: pace(footprint.backward, times.get(1)) })
        })
        .collect();
    apply(&mut traced.nodes, &paces);
    Ok(())
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

fn collect<'n>(nodes: &'n [Node], kinds: &mut BTreeMap<String, &'n Node>) {
    for node in nodes {
        match &node.body {
            Body::Chain(inside) => collect(inside, kinds),
            Body::Join { branches, .. } => branches.iter().for_each(|branch| collect(branch, kinds)),
            Body::Layer { .. } => {
                if let Some(kind) = kind(node) {
                    kinds.entry(kind).or_insert(node);
                }
            }
        }
    }
}

fn apply(nodes: &mut [Node], paces: &BTreeMap<String, Pace>) {
    for node in nodes {
        if let Some(&pace) = kind(node).and_then(|kind| paces.get(&kind)) {
            node.pace = pace;
        }
        match &mut node.body {
            Body::Chain(inside) => apply(inside, paces),
            Body::Join { branches, .. } => branches.iter_mut().for_each(|branch| apply(branch, paces)),
            Body::Layer { .. } => {}
        }
    }
}

/// Forward and backward of a layer that runs by itself.
fn times(node: &Node, device: &Device) -> Result<[Duration; 2]> {
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
