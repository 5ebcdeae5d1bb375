//! A model as the search sees it: its split tree, what flows into each part, and what each layer takes.

use crate::module::{Footprint, Incoming, JoinOp, Step, Work};
use candle_core::TensorId;
use std::ops::Range;

/// A part of the split tree, or a join.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) step: Step,
    /// Path in the model; of a join, that of the chain that it is in.
    pub(super) path: String,
    pub(super) input: Incoming,
    pub(super) output: Incoming,
    /// The smallest exact encoding of the input.
    pub(super) packing: Packing,
    pub(super) body: Body,
    /// Its parameters, and what their gradients take.
    pub(super) parameters: Vec<(TensorId, usize)>,
    /// How long it takes, beside what the cost table says.
    pub(super) pace: Pace,
}

/// How many times as long as the cost table says a layer takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    pub(super) forward: f64,
    pub(super) backward: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { forward: 1., backward: 1. }
    }
}

impl Pace {
    /// The same layer at this pace.
    fn of(self, footprint: Footprint) -> Footprint {
        Footprint {
            forward: footprint.forward.times(self.forward),
            backward: footprint.backward.times(self.backward),
            ..footprint
        }
    }
}

/// How an input can be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packing {
    /// "bit", "byte", "sparse", or "none".
    pub(super) encoding: String,
    /// Bytes of what is kept.
    pub(super) bytes: usize,
}

/// What a part is made of.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// It runs as one; whether its footprint is a guess.
    Layer { footprint: Footprint, is_guess: bool },
    /// One part after the other.
    Chain(Vec<Node>),
    /// Branches over one input, and what joining their outputs takes.
    Join { branches: Vec<Vec<Node>>, footprint: Footprint, keeps_outputs: bool },
}

impl Node {
    /// The name in its chain; joins have none.
    pub(super) fn name(&self) -> Option<&str> {
        self.step.name()
    }

    /// The same for another number of images a time step and of threads, as far as formulas say.
    pub(super) fn resized(&self, size: Size) -> Self {
        self.with_inputs(size.factor(), &|x| size.of(x))
    }

    /// The same for so many of the time steps.
    pub(super) fn for_steps(&self, steps: usize, window: usize) -> Self {
        let cut = |x: &Incoming| {
            let mut x = x.clone();
            if let Some(all) = x.dims.first_mut() {
                *all = steps;
            }
            x
        };
        self.with_inputs(steps as f64 / window.max(1) as f64, &cut)
    }

    /// The same where other things flow, `factor` times as large.
    fn with_inputs(&self, factor: f64, of: &dyn Fn(&Incoming) -> Incoming) -> Self {
        let (input, output) = (of(&self.input), of(&self.output));
        let scale = |bytes: usize| (bytes as f64 * factor) as usize;
        let packing = Packing { bytes: scale(self.packing.bytes), ..self.packing.clone() };
        let all = |nodes: &[Node]| nodes.iter().map(|node| node.with_inputs(factor, of)).collect::<Vec<_>>();
        let body = match &self.body {
            Body::Layer { footprint, is_guess } => {
                let known = if *is_guess { None } else { self.by_formula(&input) };
                let footprint = known.unwrap_or_else(|| scaled(footprint, factor, &output));
                Body::Layer { footprint, is_guess: *is_guess }
            }
            Body::Chain(nodes) => Body::Chain(all(nodes)),
            Body::Join { branches, footprint, keeps_outputs } => Body::Join {
                branches: branches.iter().map(|branch| all(branch)).collect(),
                footprint: scaled(footprint, factor, &output),
                keeps_outputs: *keeps_outputs,
            },
        };
        Node { input, output, packing, body, ..self.clone() }
    }

    /// What the layer says that it takes for another input, as the table has it.
    fn by_formula(&self, input: &Incoming) -> Option<Footprint> {
        match &self.step {
            Step::Part { part, .. } => part.footprint(input),
            Step::Join { .. } => None,
        }
    }

    /// What some of the layer's output channels take, if it says so.
    pub(super) fn footprint_of_channels(&self, channels: Range<usize>) -> Option<Footprint> {
        let Step::Part { part, .. } = &self.step else { return None };
        let some = part.for_channels(channels).ok().flatten()?;
        some.footprint(&self.input).map(|footprint| self.pace.of(footprint))
    }

    /// The footprint of a layer; of others, nothing.
    pub(super) fn footprint(&self) -> Footprint {
        match &self.body {
            Body::Layer { footprint, .. } | Body::Join { footprint, .. } => self.pace.of(footprint.clone()),
            Body::Chain(_) => Footprint::view(self.output.dims.clone()),
        }
    }

    /// Whether it joins branches by a method of the model, of which nothing is known.
    pub(super) fn joins_by_method(&self) -> bool {
        matches!(&self.step, Step::Join { op: JoinOp::Method(_), .. })
    }

    /// Whether it gives its input's buffer: a view, or nothing at all.
    pub(super) fn is_view(&self) -> bool {
        match &self.body {
            Body::Layer { footprint, .. } => footprint.is_view,
            Body::Chain(nodes) => nodes.iter().all(Node::is_view),
            Body::Join { .. } => false,
        }
    }
}

fn scaled(footprint: &Footprint, factor: f64, output: &Incoming) -> Footprint {
    let work = |work: Work| Work {
        scratch: (work.scratch as f64 * factor) as usize,
        unpacks: (work.unpacks as f64 * factor) as usize,
        ..work.times(factor)
    };
    Footprint {
        output: output.dims.clone(),
        forward: work(footprint.forward),
        backward: work(footprint.backward),
        ..footprint.clone()
    }
}

/// Another number of images a time step, and of threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// The batch that was traced.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) threads: usize,
}

impl Size {
    fn factor(self) -> f64 {
        self.to as f64 / self.from.max(1) as f64
    }

    /// `[T, N, ...]` for the other batch, where `N` is a multiple of the traced one.
    pub(super) fn of(self, x: &Incoming) -> Incoming {
        let mut x = Incoming { threads: self.threads, ..x.clone() };
        // What a head gives may have lost its time steps: `[N, ...]`.
        let from = self.from.max(1);
        let is_batch = |at: &usize| x.dims.get(*at).is_some_and(|dim| dim % from == 0);
        let at = [1, 0].into_iter().find(is_batch).unwrap_or(1);
        if let Some(images) = x.dims.get_mut(at) {
            *images = *images * self.to / from;
        }
        x
    }
}

/// The layers and joins of some nodes, in order, as [`leaves_of`](crate::checkpoint) gives their steps.
pub(super) fn leaves(nodes: &[Node]) -> Vec<&Node> {
    let mut all = Vec::new();
    for node in nodes {
        match &node.body {
            Body::Chain(inside) => all.extend(leaves(inside)),
            _ => all.push(node),
        }
    }
    all
}

/// All layers, those of branches too, in the order in which they run.
pub(super) fn layers(nodes: &[Node]) -> Vec<&Node> {
    let mut all = Vec::new();
    for node in nodes {
        match &node.body {
            Body::Chain(inside) => all.extend(layers(inside)),
            Body::Join { branches, .. } => all.extend(branches.iter().flat_map(|branch| layers(branch))),
            Body::Layer { .. } => all.push(node),
        }
    }
    all
}
