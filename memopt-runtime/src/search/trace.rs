//! One forward of the model, without a graph, that finds out what flows where.
//!
//! Nothing outlives it: running statistics, the count of forwards and carried states are as before, also if it fails.

use super::outline::{Body, Node, Pace, Packing};
use crate::compress::{Auto, Bit, EncodedBits, Pack};
use crate::module::{
    Checkpointable, Context, Densities, Executor, Footprint, Incoming, Session, Signal, Step, Work,
};
use crate::path::joined;
use crate::{Error, Result};
use candle_core::{DType, Device, Tensor, TensorId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a traced model is made of.
#[derive(Debug, Clone)]
pub(super) struct Traced {
    pub(super) nodes: Vec<Node>,
    pub(super) input: Incoming,
    pub(super) output: Incoming,
    /// Time of the layers in this forward.
    pub(super) seconds: f64,
    pub(super) device: Device,
}

/// Runs the model on a sample.
pub(super) fn trace<M: Checkpointable>(model: &M, sample: &Signal, threads: usize) -> Result<Traced> {
    let tracer = Arc::new(Tracer::new(threads));
    let (input, _) = tracer.look(sample)?;
    let twin = model.detached();
    let y = Session::new(0).rehearse(|context| {
        twin.forward(sample.clone(), &mut context.clone().with_executor(tracer.clone()))
    })?;
    let (output, _) = tracer.look(&y)?;
    let mut chains = std::mem::take(&mut *tracer.chains.lock());
    let (Some(mut nodes), true) = (chains.pop(), chains.is_empty()) else {
        return Err(Error::Plan {
            what: "the model is one layer and not made of parts, so that there is nothing to plan; put it into a list (`vec![layer]`) or a \
                   struct"
                .into(),
        });
    };
    // The twin's parameters are copies that are not trained.
    let composition = model.composition().unwrap_or_default();
    adopt(&mut nodes, composition.steps());
    let seconds = tracer.spent.lock().as_secs_f64();
    let device = sample.clone().into_tensors()?.first().map_or(Device::Cpu, |x| x.device().clone());
    Ok(Traced { nodes, input, output, seconds, device })
}

/// Merges what another sample showed: an encoding must hold all of them.
pub(super) fn merge(nodes: &mut [Node], others: &[Node]) {
    for (node, other) in nodes.iter_mut().zip(others) {
        node.packing = holding(&node.packing, node.input.densities.is_some(), other);
        node.input.densities = both(node.input.densities, other.input.densities);
        node.output.densities = both(node.output.densities, other.output.densities);
        match (&mut node.body, &other.body) {
            (Body::Chain(nodes), Body::Chain(others)) => merge(nodes, others),
            (Body::Join { branches, .. }, Body::Join { branches: others, .. }) => {
                branches.iter_mut().zip(others).for_each(|(branch, other)| merge(branch, other));
            }
            (Body::Layer { footprint, is_guess: false }, _) => {
                let input = node.input.clone();
                if let Step::Part { part, .. } = &node.step {
                    *footprint = part.footprint(&input).unwrap_or_else(|| footprint.clone());
                }
            }
            _ => {}
        }
    }
}

/// An encoding that holds what is held by two.
fn holding(packing: &Packing, is_binary: bool, other: &Node) -> Packing {
    let bytes = packing.bytes.max(other.packing.bytes);
    let either = |name: &str| packing.encoding == name || other.packing.encoding == name;
    let are_integers = |packing: &Packing, is_binary: bool| is_binary || packing.encoding == "byte";
    let encoding = if packing.encoding == other.packing.encoding || either("none") {
        // What is kept as it is takes more than what is not.
        if either("none") {
            "none"
        } else {
            packing.encoding.as_str()
        }
    } else if is_binary && other.input.densities.is_some() {
        "bit"
    } else if are_integers(packing, is_binary)
        && are_integers(&other.packing, other.input.densities.is_some())
    {
        "byte"
    } else {
        "sparse"
    };
    Packing { encoding: encoding.to_owned(), bytes }
}

fn both(a: Option<Densities>, b: Option<Densities>) -> Option<Densities> {
    Some(a?.and(b?))
}

/// Puts the model's own steps where its twin's are.
fn adopt(nodes: &mut [Node], steps: &[Step]) {
    for (node, step) in nodes.iter_mut().zip(steps) {
        node.step = step.clone();
        let of = |tensor: &Tensor| (tensor.id(), tensor.elem_count() * tensor.dtype().size_in_bytes());
        node.parameters = step.parameters().iter().filter(|tensor| tensor.is_variable()).map(of).collect();
        match (&mut node.body, step) {
            (Body::Chain(inside), Step::Part { part, .. }) => {
                adopt(inside, part.composition().unwrap_or_default().steps());
            }
            (Body::Join { branches, .. }, Step::Join { branches: of_model, .. }) => {
                branches
                    .iter_mut()
                    .zip(of_model)
                    .for_each(|(branch, of_model)| adopt(branch, of_model.steps()));
            }
            _ => {}
        }
    }
}

/// Runs steps plainly and writes down what goes into them and comes out.
#[derive(Debug)]
struct Tracer {
    threads: usize,
    /// The chains that have run inside of the part that runs.
    chains: Mutex<Vec<Vec<Node>>>,
    /// The last signal that was looked at: what a part gives is what the next one takes.
    seen: Mutex<Option<(TensorId, Incoming, Packing)>>,
    /// Time of layers.
    spent: Mutex<Duration>,
}

impl Executor for Tracer {
    fn run(&self, steps: &[Step], mut x: Signal, context: &mut Context) -> Result<Signal> {
        let mut nodes = Vec::with_capacity(steps.len());
        for step in steps {
            let (input, packing) = self.look(&x)?;
            let around = std::mem::take(&mut *self.chains.lock());
            let start = Instant::now();
            x = step.run(x, context)?;
            let time = start.elapsed();
            let inside = std::mem::replace(&mut *self.chains.lock(), around);
            // What is made of parts has timed these.
            if inside.is_empty() {
                *self.spent.lock() += time;
            }
            let (output, _) = self.look(&x)?;
            let path =
                step.name().map_or_else(|| context.path().to_owned(), |name| joined(context.path(), name));
            let body = body(step, inside, &input, &output);
            let (step, parameters, pace) = (step.clone(), vec![], Pace::default());
            nodes.push(Node { step, path, input, output, packing, body, parameters, pace });
        }
        self.chains.lock().push(nodes);
        Ok(x)
    }
}

impl Tracer {
    fn new(threads: usize) -> Self {
        Tracer { threads, chains: Mutex::default(), seen: Mutex::default(), spent: Mutex::default() }
    }

    /// What a signal is like.
    fn look(&self, x: &Signal) -> Result<(Incoming, Packing)> {
        let tensors = x.clone().into_tensors()?;
        let [tensor] = tensors.as_slice() else {
            // Of several signals, the bytes count.
            let bytes = tensors.iter().map(|x| x.elem_count() * x.dtype().size_in_bytes()).sum();
            let incoming =
                Incoming { dims: vec![bytes], dtype: DType::U8, densities: None, threads: self.threads };
            return Ok((incoming, Packing { encoding: "none".into(), bytes }));
        };
        if let Some((id, incoming, packing)) = &*self.seen.lock() {
            if *id == tensor.id() {
                return Ok((incoming.clone(), packing.clone()));
            }
        }
        let packed = Auto.pack(tensor)?;
        let packing = Packing { encoding: packed.encoding().to_owned(), bytes: packed.bytes() };
        let mut incoming = Incoming {
            dims: tensor.dims().to_vec(),
            dtype: tensor.dtype(),
            densities: None,
            threads: self.threads,
        };
        // Few ones are kept as their places, so that the bits are to be asked for.
        let packed = if packed.encoding() == "sparse" { Bit.pack(tensor)? } else { packed };
        if let Some(bits) = packed.encoded::<EncodedBits>() {
            incoming.densities = densities(bits, incoming.images());
        }
        *self.seen.lock() = Some((tensor.id(), incoming.clone(), packing.clone()));
        Ok((incoming, packing))
    }
}

/// Shares of ones in each image.
fn densities(bits: &EncodedBits, images: usize) -> Option<Densities> {
    let (words, len) = (bits.packed().words(), bits.packed().len());
    let image = len.checked_div(images).filter(|&image| image > 0)?;
    let of = |index: usize| {
        let (start, end) = (index * image, (index + 1) * image);
        let ones: u32 = (start / 64..end.div_ceil(64))
            .map(|word| {
                let first = (word * 64).max(start) - word * 64;
                let last = ((word + 1) * 64).min(end) - word * 64;
                let mask = (u64::MAX << first) & (u64::MAX >> (64 - last));
                (words.get(word).copied().unwrap_or_default() & mask).count_ones()
            })
            .sum();
        f64::from(ones) / image as f64
    };
    let mut all = (0..images).map(of);
    let first = all.next()?;
    let (least, sum, most) =
        all.fold((first, first, first), |(least, sum, most), x| (least.min(x), sum + x, most.max(x)));
    Some(Densities { least, mean: sum / images as f64, most })
}

/// What a step is made of, from the chains that ran inside of it.
fn body(step: &Step, mut inside: Vec<Vec<Node>>, input: &Incoming, output: &Incoming) -> Body {
    match step {
        Step::Part { part, .. } => match (part.composition(), inside.len()) {
            (Some(_), 1) => Body::Chain(inside.pop().unwrap_or_default()),
            (Some(composition), 0) if composition.steps().is_empty() => Body::Chain(vec![]),
            _ => match part.footprint(input).filter(|footprint| footprint.output == output.dims) {
                Some(footprint) => Body::Layer { footprint, is_guess: false },
                None => Body::Layer { footprint: guess(input, output), is_guess: true },
            },
        },
        Step::Join { op, branches } if inside.len() == branches.len() => {
            let footprint = op.footprint(output);
            Body::Join { branches: inside, footprint, keeps_outputs: op.keeps_branches() }
        }
        Step::Join { .. } => Body::Layer { footprint: guess(input, output), is_guess: true },
    }
}

/// A layer that does not say what it takes: Candle's operations keep what goes in, and what comes out goes into the next.
fn guess(input: &Incoming, output: &Incoming) -> Footprint {
    let moved = input.bytes() + output.bytes();
    let forward = Work::moving(moved).with_scratch(output.bytes());
    let backward = Work::moving(2 * moved).with_scratch(moved);
    Footprint { output: output.dims.clone(), keeps_input: true, forward, backward, ..Footprint::default() }
}
