//! A training step under a plan, on a heap that counts and holds nothing: the executor's way through the split tree, each
//! buffer taken and dropped as the real one is.
//!
//! Forward in the order of the parts; what a part keeps goes on a tape. Backward takes the tape from its end. Gradients
//! are moved from function to function, those of weights stay until the step is over.

mod channels;
mod recompute;
mod retained;
mod tape;
mod time;

use super::cost::CostTable;
pub use super::heap::Mark;
use super::heap::{Buffer, Heap};
use super::outline::{layers, leaves, Body, Node, Packing};
use super::trace::Traced;
use crate::module::{Incoming, Work};
use crate::plan::{self, Compressor, Plan};
use candle_core::TensorId;
use std::collections::{BTreeMap, HashMap};
use tape::Tape;

/// What a step under a plan would take.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prediction {
    /// The highest number of bytes that are alive at once, beyond those before the step.
    ///
    /// The loss is taken to be one that sums the output up at once: `mean_all`, `sum_all`, or a mean over time as in
    /// [`cross_entropy_of_mean`](crate::nn::cross_entropy_of_mean). It keeps the output and makes three buffers of its size,
    /// the gradient with what Candle adds it to. A loss that computes something of every element, as [`tet`](crate::nn::tet)
    /// does, takes some more of that size; with few classes, all of that is little.
    pub peak: usize,
    /// Bytes that are kept from forward to backward, with those of the output.
    pub held: usize,
    /// Time, by the cost table.
    pub seconds: f64,
    /// The part that runs at the peak.
    pub at_peak: String,
    /// The highest number of bytes while each part runs.
    pub peaks: BTreeMap<String, usize>,
    /// What each segment takes.
    pub segments: BTreeMap<String, SegmentPrediction>,
    /// The memory curve.
    pub marks: Vec<Mark>,
}

/// What a segment would take.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SegmentPrediction {
    /// Bytes that it keeps of its own.
    pub held: usize,
    /// Time of its forward, which is computed again in backward.
    pub recompute_seconds: f64,
}

/// The step of a traced model.
pub(super) fn predict(traced: &Traced, plan: &Plan, costs: &CostTable) -> Prediction {
    let mut machine = Machine::new(plan, costs);
    let x = Flow { buffer: machine.heap.take(0), tracked: false };
    let mut tape = Tape::default();
    let y = machine.forward(&traced.nodes, "", x, Some(&mut tape));
    let held = machine.heap.live();
    machine.heap.enter("loss");
    if y.tracked {
        let loss = LossBytes::of(traced);
        let gradient = machine.heap.take_foreign(loss.gradient);
        drop(machine.heap.take(loss.beside));
        machine.heap.mark("loss".into());
        drop(machine.backward(tape, gradient));
        machine.heap.enter("gradients");
        drop(machine.heap.take(2 * machine.deferred));
        machine.heap.mark("gradients".into());
    }
    // The loss keeps the output until backward is over.
    drop(y);
    machine.finish(held)
}

/// What a loss takes: one that reduces the output at once, as `mean_all`, `sum_all` and the mean over time of
/// [`cross_entropy_of_mean`](crate::nn::cross_entropy_of_mean) and [`mse_of_rates`](crate::nn::mse_of_rates) do. What they
/// compute of the reduced output is not counted, nor what others compute of each element.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossBytes {
    /// The output, which Candle's graph keeps.
    pub(super) output: usize,
    /// Its gradient.
    pub(super) gradient: usize,
    /// What exists beside the two for a moment: Candle adds a gradient to zeros, and so once more through a view.
    pub(super) beside: usize,
}

impl LossBytes {
    pub(super) fn of(traced: &Traced) -> Self {
        let output = traced.output.bytes();
        let last =
            leaves(&traced.nodes).last().map(|node| node.is_view() && node.input.dims != node.output.dims);
        LossBytes { output, gradient: output, beside: if last == Some(true) { 2 * output } else { output } }
    }

    /// All of it.
    pub(super) fn all(self) -> usize {
        self.output + self.gradient + self.beside
    }
}

/// What one piece of the model takes by itself: the unit that an exact search puts plans together from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    /// Peak of the forward, with the input.
    pub(super) forward: usize,
    /// Bytes kept, without the input.
    pub(super) held: usize,
    /// Whether the input itself is kept.
    pub(super) keeps_input: bool,
    /// Peak of the backward, with all that is kept and the gradient that comes in.
    pub(super) backward: usize,
    /// The largest gradient of a weight that Candle adds to zeros only when backward has been everywhere.
    pub(super) deferred: usize,
    pub(super) seconds: f64,
}

/// The unit of consecutive nodes under a plan for them alone.
///
/// `is_last`: the gradient that comes in is the loss's.
pub(super) fn unit(
    nodes: &[Node],
    (parent, tracked, is_last): (&str, bool, bool),
    plan: &Plan,
    costs: &CostTable,
) -> Unit {
    let mut machine = Machine::new(plan, costs);
    let input = machine.heap.take(nodes.first().map_or(0, |node| node.input.bytes()));
    let output = nodes.last().map_or(0, |node| node.output.bytes());
    let mut tape = Tape::default();
    let y = machine.forward(nodes, parent, Flow { buffer: input.clone(), tracked }, Some(&mut tape));
    let forward = machine.heap.peak();
    drop(y);
    let keeps_input = input.is_shared();
    let held = machine.heap.live() - input.bytes();
    drop(input);
    let gradient = if is_last { machine.heap.take_foreign(output) } else { machine.heap.take(output) };
    machine.heap.restart();
    drop(machine.backward(tape, gradient));
    let (backward, deferred, seconds) = (machine.heap.peak(), machine.deferred, machine.seconds);
    Unit { forward, held, keeps_input, backward, deferred, seconds }
}

/// A tensor on its way.
#[derive(Debug, Clone)]
struct Flow {
    buffer: Buffer,
    /// Whether a gradient is wanted for it.
    tracked: bool,
}

/// Runs a step.
struct Machine<'a> {
    heap: Heap,
    plan: &'a Plan,
    costs: &'a CostTable,
    seconds: f64,
    /// Gradients of weights.
    gradients: HashMap<TensorId, Buffer>,
    segments: BTreeMap<String, SegmentPrediction>,
    /// The largest gradient of a weight that Candle gets when all others are there.
    deferred: usize,
    /// How deep in segments.
    depth: usize,
}

impl<'a> Machine<'a> {
    fn new(plan: &'a Plan, costs: &'a CostTable) -> Self {
        Machine {
            heap: Heap::default(),
            plan,
            costs,
            seconds: 0.,
            gradients: HashMap::new(),
            segments: BTreeMap::new(),
            deferred: 0,
            depth: 0,
        }
    }

    fn finish(self, held: usize) -> Prediction {
        Prediction {
            peak: self.heap.peak(),
            held,
            seconds: self.seconds,
            at_peak: self.heap.at_peak(),
            peaks: self.heap.peaks(),
            segments: self.segments,
            marks: self.heap.marks(),
        }
    }

    /// Runs a chain as the plan says: with a tape, what backward needs is kept; without, nothing is.
    fn forward<'n>(
        &mut self,
        mut nodes: &'n [Node],
        parent: &str,
        mut x: Flow,
        mut tape: Option<&mut Tape<'n>>,
    ) -> Flow {
        let plan = self.plan;
        while let Some((node, rest)) = nodes.split_first() {
            let planned = node.name().and_then(|name| plan.beginning_at(parent, name));
            (x, nodes) = match (planned, tape.as_deref_mut()) {
                (Some((key, last, segment)), Some(tape)) => {
                    let end = nodes.iter().position(|node| node.name() == Some(last)).unwrap_or_default();
                    let (inside, rest) = nodes.split_at(end + 1);
                    (self.segment(key, inside, parent, segment, x, tape), rest)
                }
                (_, tape) => (self.part(node, x, tape), rest),
            };
        }
        x
    }

    /// Runs nodes of which none begins a segment; the plan is about what is inside of them.
    fn plainly<'n>(&mut self, nodes: &'n [Node], x: Flow, mut tape: Option<&mut Tape<'n>>) -> Flow {
        nodes.iter().fold(x, |x, node| self.part(node, x, tape.as_deref_mut()))
    }

    /// Takes a tape from its end; `gradient` is that of the output. Gives that of the input.
    fn backward(&mut self, tape: Tape<'_>, gradient: Buffer) -> Option<Buffer> {
        let mut gradient = Some(gradient);
        for entry in tape.into_iter().rev() {
            let Some(dy) = gradient else { break };
            gradient = self.entry(entry, dy);
        }
        gradient
    }

    /// The gradients of a node's weights, which stay.
    fn weight_gradients(&mut self, node: &Node) {
        for &(id, bytes) in &node.parameters {
            let heap = &self.heap;
            self.gradients.entry(id).or_insert_with(|| heap.take(bytes));
        }
    }

    /// What Candle takes when it adds the gradients of a function's weights to zeros: at once, or, where they have a node of
    /// their own in the graph because they do not fit one with the input, when it has been everywhere else.
    fn deliver_weights(&mut self, nodes: &[&Node], wants_input: bool) {
        /// Arguments of a node.
        const ARGUMENTS: usize = 3;
        if self.depth > 0 {
            return;
        }
        let mut all: Vec<(TensorId, usize)> = Vec::new();
        for &parameter in nodes.iter().flat_map(|node| &node.parameters) {
            if all.iter().all(|(known, _)| *known != parameter.0) {
                all.push(parameter);
            }
        }
        let most = all.iter().map(|&(_, bytes)| bytes).max().unwrap_or_default();
        match all.len() > 1 && all.len() + usize::from(wants_input) > ARGUMENTS {
            true => self.deferred = self.deferred.max(most),
            false => drop(self.heap.take(2 * most)),
        }
    }

    /// Runs some work: its scratch exists for a moment, its time is added up.
    fn work(&mut self, work: Work) {
        drop(self.heap.take(work.scratch));
        self.seconds += self.costs.seconds(work);
    }

    /// While outside of segments, the name of what runs.
    fn enter(&self, part: &str) {
        if self.depth == 0 {
            self.heap.enter(part);
        }
    }
}

/// How a segment keeps its input: in a packed copy of so many bytes, or as it is.
fn packed_bytes(node: &Node, compressor: Option<&Compressor>) -> Option<usize> {
    let declared = match &node.step {
        crate::module::Step::Part { compressor, .. } => compressor.as_ref().map(|c| c.name().to_owned()),
        crate::module::Step::Join { .. } => None,
    };
    let name = compressor.map(|c| c.name().to_owned()).or(declared).unwrap_or_else(|| "auto".into());
    packing(&node.input, &node.packing, &name)
}

/// Bytes of an input packed by a compressor of this name; `None`: it is kept as it is.
fn packing(x: &Incoming, found: &Packing, compressor: &str) -> Option<usize> {
    let is_binary = x.densities.is_some();
    match compressor {
        "null" => None,
        "bit" => is_binary.then(|| x.elements().div_ceil(64) * 8),
        "byte" => (is_binary || found.encoding == "byte").then(|| x.elements()),
        "sparse" => (found.encoding == "sparse").then_some(found.bytes),
        // A compressor of the user's is taken to do what the best of ours does.
        _ => (found.encoding != "none").then_some(found.bytes),
    }
}

/// The name of the encoding in which a segment keeps its input.
pub(super) fn packing_name(node: &Node, compressor: Option<&Compressor>) -> String {
    match packed_bytes(node, compressor) {
        None => "as it is".into(),
        Some(_) => compressor.map_or_else(|| node.packing.encoding.clone(), ToString::to_string),
    }
}

/// Time of the forward alone, everything retained.
pub(super) fn forward_seconds(traced: &Traced, costs: &CostTable) -> f64 {
    layers(&traced.nodes).iter().map(|node| costs.seconds(node.footprint().forward)).sum()
}

/// The layers that do not say what they take.
pub(super) fn guesses(nodes: &[Node]) -> Vec<String> {
    let inside = |node: &Node| match &node.body {
        Body::Layer { is_guess, .. } => {
            if *is_guess {
                vec![node.path.clone()]
            } else {
                vec![]
            }
        }
        Body::Chain(nodes) => guesses(nodes),
        Body::Join { branches, .. } => {
            let inside = branches.iter().flat_map(|branch| guesses(branch));
            inside.chain(node.joins_by_method().then(|| node.path.clone())).collect()
        }
    };
    nodes.iter().flat_map(inside).collect()
}

/// Bytes that nodes keep where they are retained.
pub(super) fn retained_bytes(nodes: &[Node]) -> usize {
    let of = |node: &Node| match &node.body {
        Body::Layer { footprint, .. } if footprint.keeps_input => node.input.bytes(),
        Body::Layer { .. } => 0,
        Body::Chain(nodes) => retained_bytes(nodes),
        Body::Join { branches, keeps_outputs, .. } => {
            let outputs = branches.iter().filter_map(|branch| branch.last()).map(|node| node.output.bytes());
            let kept: usize = if *keeps_outputs { outputs.sum() } else { 0 };
            kept + branches.iter().map(|branch| retained_bytes(branch)).sum::<usize>()
        }
    };
    nodes.iter().map(of).sum()
}

/// The name of a segment's work in the curve.
fn mark_name(key: &str, what: &str) -> String {
    format!("{key}: {what}")
}

/// What a plan says of one segment.
type Planned = plan::Segment;
