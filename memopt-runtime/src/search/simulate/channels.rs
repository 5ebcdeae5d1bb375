//! Segments of a layer with weights, a norm and neurons, without a graph or in groups of channels.

use super::tape::{Kept, Tape};
use super::{Flow, Machine};
use crate::checkpoint::IN_PLACE_BLOCK;
use crate::module::{Incoming, Step, Work};
use crate::search::heap::Buffer;
use crate::search::outline::{leaves, Node};
use std::ops::Range;

impl<'a> Machine<'a> {
    /// Norm and neurons in the layer's buffer, which is the output's.
    pub(super) fn first_pass_in_place(&mut self, nodes: &[Node], x: Buffer) -> Buffer {
        let all = leaves(nodes);
        let Some((behind, until)) = all.len().checked_sub(2).map(|end| (&all[end..], &all[..end])) else {
            return x;
        };
        let z = self.again(until, x);
        for node in behind {
            self.seconds += self.costs.seconds(Work { scratch: 0, ..node.footprint().forward });
        }
        // The potentials after the window, of all channels.
        let window = behind.first().and_then(|norm| norm.input.dims.first().copied()).unwrap_or(1).max(1);
        let potentials = self.heap.take(z.bytes() / window);
        if let Some(norm) = behind.first() {
            self.blocks(Blocks::of_window(&norm.input), 2);
        }
        drop(potentials);
        z
    }

    /// A few channels at a time, in each thread: so many copies of them.
    pub(super) fn blocks(&mut self, blocks: Blocks, copies: usize) {
        drop(self.heap.take(blocks.bytes * copies * self.costs.threads().min(blocks.count)));
    }

    pub(super) fn back_in_place(
        &mut self,
        nodes: &[Node],
        kept: Kept,
        wants_input: bool,
        (layer, groups): (usize, &[Range<usize>]),
        dy: Buffer,
    ) -> Option<Buffer> {
        let all = leaves(nodes);
        let (Some(with_weights), Some(norm), Some(neurons)) =
            (all.get(layer), all.get(layer + 1), all.get(layer + 2))
        else {
            return Some(dy);
        };
        let before = &all[..layer];
        let wants_features = wants_input || before.iter().any(|node| !node.parameters.is_empty());
        // What goes into the layer: what is kept, or what comes before it, computed again.
        let stays_packed = before.is_empty() && kept.is_packed && are_bits(&kept, with_weights);
        let features = match before.is_empty() {
            // Bits are given to the layer as they are.
            true => (kept.is_packed && !are_bits(&kept, with_weights))
                .then(|| self.heap.take(with_weights.input.bytes())),
            false => Some(self.again(before, kept.input.clone())),
        };
        let dy = self.heap.own(dy);
        self.weight_gradients(norm);
        let channels = groups.last().map_or(1, |group| group.end).max(1);
        for group in groups {
            let bytes = with_weights.output.bytes() / channels * group.len();
            let z = self.group(with_weights, group, bytes, stays_packed);
            let share = group.len() as f64 / channels as f64;
            for node in [norm, neurons] {
                self.seconds += self.costs.seconds(node.footprint().forward.times(share));
                self.seconds += self.costs.seconds(node.footprint().backward.times(share));
            }
            self.blocks(Blocks::of_window(&norm.input), 3);
            drop(z);
        }
        let footprint = with_weights.footprint();
        self.weight_gradients(with_weights);
        let unpacked = self.heap.take(if stays_packed { footprint.backward.unpacks } else { 0 });
        self.work(footprint.backward);
        drop(unpacked);
        let at_features =
            wants_features.then(|| self.input_gradient(dy, with_weights.input.bytes(), &footprint));
        drop(features);
        let at_features = at_features?;
        if before.is_empty() {
            return wants_input.then_some(at_features);
        }
        if before.iter().all(|node| is_linear_map(node)) {
            // From the last to the first, without their values.
            let back = |machine: &mut Self, dy, node: &&Node| {
                let footprint = node.footprint();
                machine.work(footprint.backward);
                machine.input_gradient(dy, node.input.bytes(), &footprint)
            };
            let dx = before.iter().rev().fold(at_features, |dy, node| back(self, dy, node));
            return wants_input.then_some(dx);
        }
        let x = self.unpacked(kept, nodes.first(), wants_input);
        let mut tape = Tape::default();
        let mut flow = Flow { buffer: x, tracked: wants_input };
        for node in before {
            flow = self.layer(node, flow, Some(&mut tape));
        }
        drop(flow);
        self.backward(tape, at_features)
    }

    /// Layers without a graph.
    fn again(&mut self, layers: &[&Node], x: Buffer) -> Buffer {
        layers.iter().fold(x, |x, node| self.layer(node, Flow { buffer: x, tracked: false }, None).buffer)
    }

    /// The output of some channels of a layer, of an input that may come as bits.
    fn group(&mut self, node: &Node, channels: &Range<usize>, bytes: usize, is_packed: bool) -> Buffer {
        let footprint = node.footprint_of_channels(channels.clone());
        let z = self.heap.take(bytes);
        let work = footprint.unwrap_or_else(|| node.footprint()).forward;
        let unpacked = self.heap.take(if is_packed { work.unpacks } else { 0 });
        self.work(work);
        drop(unpacked);
        z
    }

    pub(super) fn back_by_channel_graph(
        &mut self,
        nodes: &[Node],
        kept: Kept,
        wants_input: bool,
        (layer, groups): (usize, &[Range<usize>]),
        dy: Buffer,
    ) -> Option<Buffer> {
        let all = leaves(nodes);
        let (before, behind) = all.split_at(layer.min(all.len()));
        let Some((with_weights, behind)) = behind.split_first() else { return Some(dy) };
        let x = self.unpacked(kept, nodes.first(), wants_input);
        let mut tape = Tape::default();
        let mut features = Flow { buffer: x, tracked: wants_input };
        for node in before {
            features = self.layer(node, features, Some(&mut tape));
        }
        let dy = self.heap.own(dy);
        let channels = groups.last().map_or(1, |group| group.end).max(1);
        for group in groups {
            let share = group.len() as f64 / channels as f64;
            let bytes = |whole: usize| (whole as f64 * share) as usize;
            let z = self.group(with_weights, group, bytes(with_weights.output.bytes()), false);
            let normalized = self.heap.take(z.bytes());
            // The neurons' graph, and the gradient that goes back through it.
            let mut kept = Vec::new();
            for node in behind.iter().skip(1) {
                let footprint = node.footprint();
                kept.push(self.heap.take(bytes(node.output.bytes())));
                self.work(footprint.forward.times(share));
            }
            let gradient = self.heap.take(bytes(dy.bytes()));
            for node in behind {
                self.weight_gradients(node);
                self.work(node.footprint().backward.times(share));
            }
            drop((kept, gradient, normalized, z));
        }
        let footprint = with_weights.footprint();
        self.weight_gradients(with_weights);
        self.work(footprint.backward);
        let at_features =
            features.tracked.then(|| self.input_gradient(dy, with_weights.input.bytes(), &footprint))?;
        drop(features);
        self.backward(tape, at_features)
    }
}

/// Whether an input is kept as one bit an element.
pub(super) fn are_bits(kept: &Kept, node: &Node) -> bool {
    node.input.densities.is_some() && kept.input.bytes() == node.input.elements().div_ceil(64) * 8
}

/// Whether a layer is gone back through without its input.
fn is_linear_map(node: &Node) -> bool {
    matches!(&node.step, Step::Part { part, .. } if part.linear_map().is_some())
}

/// Channels that are done together, in so many time steps: the bytes of a block of them, and how many blocks there are.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    bytes: usize,
    count: usize,
}

impl Blocks {
    /// Those of a window, or of some of its time steps.
    pub(super) fn of(z: &Incoming, steps: usize) -> Self {
        let channels = z.dims.get(2).copied().unwrap_or(1).max(1);
        let channel = z.elements() / channels / z.dims.first().copied().unwrap_or(1).max(1) * steps;
        let width = (IN_PLACE_BLOCK / channel.max(1)).clamp(1, channels);
        Blocks { bytes: channel * width * z.dtype.size_in_bytes(), count: channels.div_ceil(width) }
    }

    /// Those of a whole window.
    pub(super) fn of_window(z: &Incoming) -> Self {
        Self::of(z, z.dims.first().copied().unwrap_or(1))
    }
}
