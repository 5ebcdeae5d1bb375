//! Segments in time chunks.

use super::channels::{are_bits, Blocks};
use super::tape::{Kept, Tape};
use super::{Flow, Machine};
use crate::checkpoint::TimeChunks;
use crate::module::{Footprint, Work};
use crate::search::heap::Buffer;
use crate::search::outline::{Body, Node};
use std::ops::Range;

/// A share of the time steps.
#[derive(Clone, Copy)]
struct Share {
    steps: usize,
    of: usize,
}

impl Share {
    fn of(range: &Range<usize>, window: usize) -> Self {
        Share { steps: range.len(), of: window.max(1) }
    }

    fn bytes(self, whole: usize) -> usize {
        whole / self.of * self.steps
    }

    fn as_f64(self) -> f64 {
        self.steps as f64 / self.of as f64
    }

    /// What a layer takes for these steps.
    fn footprint(self, node: &Node) -> Footprint {
        node.for_steps(self.steps, self.of).footprint()
    }

    /// The same layers for these steps.
    fn nodes(self, layers: &[&Node]) -> Vec<Node> {
        layers.iter().map(|node| node.for_steps(self.steps, self.of)).collect()
    }
}

/// The layers of such a segment.
struct Layers<'s, 'n> {
    before: &'s [&'n Node],
    norm: Option<&'n Node>,
    behind: &'s [&'n Node],
    window: usize,
}

impl<'s, 'n> Layers<'s, 'n> {
    fn of(leaves: &'s [&'n Node], chunks: &TimeChunks) -> Self {
        let window = chunks.ranges.last().map_or(1, |range| range.end);
        match chunks.norm {
            None => Layers { before: leaves, norm: None, behind: &[], window },
            Some(norm) => {
                let (before, rest) = leaves.split_at(norm.min(leaves.len()));
                let (norm, behind) =
                    rest.split_first().map_or((None, rest), |(norm, rest)| (Some(*norm), rest));
                Layers { before, norm, behind, window }
            }
        }
    }
}

impl<'a> Machine<'a> {
    pub(super) fn first_pass_in_time(&mut self, leaves: &[&Node], chunks: &TimeChunks, x: Buffer) -> Buffer {
        let layers = Layers::of(leaves, chunks);
        let last = layers.before.last();
        let bytes = last.map_or(x.bytes(), |node| node.output.bytes());
        // The chunks of the input are views.
        let states = self.heap.take(states_of(layers.before));
        let mut whole = None;
        for range in &chunks.ranges {
            let view = self.heap.take(0);
            let z = self.chunk_of(layers.before, Share::of(range, layers.window), view);
            whole.get_or_insert_with(|| self.heap.take(bytes));
            drop(z);
        }
        let z = whole.unwrap_or_else(|| self.heap.take(bytes));
        let Some(norm) = layers.norm else { return z };
        self.seconds += self.costs.seconds(Work { scratch: 0, ..norm.footprint().forward });
        if chunks.in_place {
            for node in layers.behind {
                self.seconds += self.costs.seconds(Work { scratch: 0, ..node.footprint().forward });
            }
            let potentials = self.heap.take(z.bytes() / layers.window);
            self.blocks(Blocks::of_window(&norm.input), 2);
            drop(potentials);
            return z;
        }
        let output = layers.behind.last().map_or(z.bytes(), |node| node.output.bytes());
        let states_behind = self.heap.take(states_of(layers.behind));
        let mut beside = None;
        for range in &chunks.ranges {
            let share = Share::of(range, layers.window);
            // The norm's output is a copy of the chunk.
            let n = self.heap.take(share.bytes(norm.output.bytes()));
            let y = self.chunk_of(layers.behind, share, n);
            if output != z.bytes() {
                beside.get_or_insert_with(|| self.heap.take(output));
            }
            drop(y);
        }
        drop((states, states_behind));
        beside.unwrap_or(z)
    }

    /// The output of layers for a chunk.
    fn chunk_of(&mut self, layers: &[&Node], share: Share, x: Buffer) -> Buffer {
        let nodes = share.nodes(layers);
        self.plainly(&nodes, Flow { buffer: x, tracked: false }, None).buffer
    }

    /// A chunk of the input: unpacked, or a view of what is kept.
    fn input_chunk(&mut self, leaves: &[&Node], kept: &Kept, share: Share) -> Buffer {
        let bytes = leaves.first().map_or(0, |node| share.bytes(node.input.bytes()));
        self.seconds += self.costs.seconds(Work::moving(bytes));
        self.heap.take(if kept.is_packed { bytes } else { 0 })
    }

    pub(super) fn back_in_time(
        &mut self,
        leaves: &[&Node],
        chunks: &TimeChunks,
        kept: Kept,
        wants_input: bool,
        dy: Buffer,
    ) -> Option<Buffer> {
        let layers = Layers::of(leaves, chunks);
        let dy = self.heap.own(dy);
        let kept = match leaves.first() {
            // Only bits can be unpacked some steps at a time.
            Some(node) if kept.is_packed && !are_bits(&kept, node) => {
                Kept { input: self.heap.take(node.input.bytes()), is_packed: false }
            }
            _ => kept,
        };
        let Some(norm) = layers.norm else {
            return self.back_by_graph_in_time(
                leaves,
                layers.before,
                &layers,
                chunks,
                &kept,
                wants_input,
                dy,
            );
        };
        self.weight_gradients(norm);
        let z = match chunks.in_place {
            true => self.through_neurons(leaves, &layers, norm, chunks, &kept, dy),
            false => self.through_norm(leaves, &layers, norm, chunks, &kept, dy),
        };
        match (chunks.has_layer, layers.before.split_last()) {
            (true, Some((layer, before))) => {
                let goes_on = wants_input || before.iter().any(|node| !node.parameters.is_empty());
                let at_layer = self.through_layer(leaves, &layers, layer, chunks, &kept, goes_on, z)?;
                match before.is_empty() {
                    true => wants_input.then_some(at_layer),
                    false => self.back_by_graph_in_time(
                        leaves,
                        before,
                        &layers,
                        chunks,
                        &kept,
                        wants_input,
                        at_layer,
                    ),
                }
            }
            _ => self.back_by_graph_in_time(leaves, layers.before, &layers, chunks, &kept, wants_input, z),
        }
    }

    /// Back through the neurons in ranges of their own, over the gradient.
    fn through_neurons(
        &mut self,
        leaves: &[&Node],
        layers: &Layers<'_, '_>,
        norm: &Node,
        chunks: &TimeChunks,
        kept: &Kept,
        dy: Buffer,
    ) -> Buffer {
        let state = norm.output.bytes() / layers.window.max(1);
        let longest = chunks.ranges.iter().map(Range::len).max().unwrap_or(1);
        let pieces = |range: &Range<usize>| {
            let count = range.len().div_ceil(longest).max(1);
            let (len, start) = (range.len(), range.start);
            (0..count).map(move |piece| start + piece * len / count..start + (piece + 1) * len / count)
        };
        let ranges = &chunks.ranges_in_place;
        let longest_in_place = ranges.iter().map(Range::len).max().unwrap_or(1);
        // The potentials before each range but the first, on the way forward.
        let mut potentials = Vec::new();
        for range in ranges.iter().take(ranges.len().saturating_sub(1)) {
            let v = self.heap.take(state);
            for piece in pieces(range) {
                let share = Share::of(&piece, layers.window);
                let x = self.input_chunk(leaves, kept, share);
                let z = self.chunk_of(layers.before, share, x);
                self.neurons(norm, layers.behind, (share, longest_in_place), false);
                drop(z);
            }
            potentials.push(v);
        }
        // The gradient of the potentials, from the last range on.
        let dv = (ranges.len() > 1).then(|| self.heap.take(state));
        for range in ranges.iter().rev() {
            let share = Share::of(range, layers.window);
            let several = pieces(range).count() > 1;
            let whole = several.then(|| self.heap.take(share.bytes(norm.input.bytes())));
            let mut z = None;
            for piece in pieces(range) {
                let share = Share::of(&piece, layers.window);
                let x = self.input_chunk(leaves, kept, share);
                let of_piece = self.chunk_of(layers.before, share, x);
                if !several {
                    z = Some(of_piece);
                }
            }
            self.neurons(norm, layers.behind, (share, longest_in_place), true);
            drop((whole, z));
            potentials.pop();
        }
        drop(dv);
        dy
    }

    /// Norm and neurons of a chunk, a few channels at a time in each thread.
    fn neurons(&mut self, norm: &Node, behind: &[&Node], (share, longest): (Share, usize), is_back: bool) {
        for node in std::iter::once(&norm).chain(behind) {
            let footprint = node.footprint();
            self.seconds += self.costs.seconds(footprint.forward.times(share.as_f64()));
            if is_back {
                self.seconds += self.costs.seconds(footprint.backward.times(share.as_f64()));
            }
        }
        self.blocks(Blocks::of(&norm.input, longest), 3);
    }

    /// Back through the layers behind the norm by their graph.
    fn through_norm(
        &mut self,
        leaves: &[&Node],
        layers: &Layers<'_, '_>,
        norm: &Node,
        chunks: &TimeChunks,
        kept: &Kept,
        dy: Buffer,
    ) -> Buffer {
        let states = self.border_states(layers.behind, chunks);
        for range in chunks.ranges.iter().take(chunks.ranges.len().saturating_sub(1)) {
            let share = Share::of(range, layers.window);
            let x = self.input_chunk(leaves, kept, share);
            let z = self.chunk_of(layers.before, share, x);
            let n = self.heap.take(share.bytes(norm.output.bytes()));
            let y = self.chunk_of(layers.behind, share, n);
            drop((z, y));
        }
        let mut of_states = None;
        for (index, range) in chunks.ranges.iter().enumerate().rev() {
            let share = Share::of(range, layers.window);
            let x = self.input_chunk(leaves, kept, share);
            let z = self.chunk_of(layers.before, share, x);
            let n = self.heap.take(share.bytes(norm.output.bytes()));
            // A leaf is a copy.
            let leaf = self.heap.take(n.bytes());
            drop(n);
            let states = self.states_of_chunk(layers.behind, index);
            let dn = self.graph_of(layers.behind, share, (leaf.clone(), true), share.bytes(dy.bytes()));
            let beside = self.heap.take(states.0.as_ref().map_or(0, Buffer::bytes));
            of_states = self.gradient_of_states(states, of_states);
            if let Some(dn) = dn {
                let dn = self.added_to_zeros(dn);
                drop((beside, leaf));
                drop(self.heap.take(dn.bytes()));
            }
            drop(z);
        }
        drop(states);
        self.seconds += self.costs.seconds(norm.footprint().backward);
        dy
    }

    /// The states of neurons before each chunk but the first.
    fn border_states(&mut self, layers: &[&Node], chunks: &TimeChunks) -> Buffer {
        self.heap.take(states_of(layers) * chunks.ranges.len().saturating_sub(1))
    }

    /// A chunk through layers by their graph and back: the gradient of the input `x`, if it is tracked.
    fn graph_of(
        &mut self,
        layers: &[&Node],
        share: Share,
        (x, tracked): (Buffer, bool),
        gradient: usize,
    ) -> Option<Buffer> {
        let nodes = share.nodes(layers);
        let mut tape = Tape::default();
        let leaf = x.clone();
        let y = self.plainly(&nodes, Flow { buffer: x, tracked }, Some(&mut tape));
        let part = self.heap.take(gradient);
        drop(y);
        let dx = self.backward(tape, part);
        drop(leaf);
        dx.filter(|_| tracked)
    }

    /// The states before a chunk, as leaves, and behind it.
    fn states_of_chunk(&mut self, layers: &[&Node], index: usize) -> (Option<Buffer>, Buffer) {
        let bytes = states_of(layers);
        ((index > 0).then(|| self.heap.take(bytes)), self.heap.take(bytes))
    }

    /// The gradient of the states before a chunk, which that of the states behind it became.
    fn gradient_of_states(
        &mut self,
        (before, behind): (Option<Buffer>, Buffer),
        of_behind: Option<Buffer>,
    ) -> Option<Buffer> {
        let bytes = before.as_ref().map(Buffer::bytes)?;
        let gradient = of_behind.unwrap_or_else(|| self.heap.take(bytes));
        let gradient = self.added_to_zeros(gradient);
        drop((before, behind));
        Some(gradient)
    }

    /// The gradient of a leaf, which Candle adds to zeros.
    fn added_to_zeros(&mut self, gradient: Buffer) -> Buffer {
        let zeros = self.heap.take(gradient.bytes());
        let sum = self.heap.take(gradient.bytes());
        drop((zeros, gradient));
        sum
    }

    /// Back through the norm and the layer in front of it, chunk by chunk.
    #[allow(clippy::too_many_arguments)]
    fn through_layer(
        &mut self,
        leaves: &[&Node],
        layers: &Layers<'_, '_>,
        layer: &Node,
        chunks: &TimeChunks,
        kept: &Kept,
        is_wanted: bool,
        dy: Buffer,
    ) -> Option<Buffer> {
        let before = &layers.before[..layers.before.len().saturating_sub(1)];
        let beside = is_wanted && layer.input.bytes() > dy.bytes();
        let longest = chunks.ranges.iter().map(Range::len).max().unwrap_or(1);
        let mut dx = None;
        for range in chunks.ranges.iter().rev() {
            let share = Share::of(range, layers.window);
            let x = self.input_chunk(leaves, kept, share);
            let x = self.chunk_of(before, share, x);
            let footprint = share.footprint(layer);
            let z = self.heap.take(share.bytes(layer.output.bytes()));
            self.work(footprint.forward);
            self.blocks(Blocks::of(&layer.output, longest), 2);
            drop(z);
            let dz = self.heap.take(share.bytes(layer.output.bytes()));
            self.weight_gradients(layer);
            self.work(footprint.backward);
            let part =
                is_wanted.then(|| self.input_gradient(dz, share.bytes(layer.input.bytes()), &footprint));
            if beside {
                dx.get_or_insert_with(|| self.heap.take(layer.input.bytes()));
            }
            drop((part, x));
        }
        match (is_wanted, dx) {
            (false, _) => None,
            (true, Some(dx)) => Some(dx),
            (true, None) => Some(self.in_place_of(dy, layer.input.bytes(), true)),
        }
    }

    /// Back through layers by their graph, chunk by chunk.
    #[allow(clippy::too_many_arguments)]
    fn back_by_graph_in_time(
        &mut self,
        leaves: &[&Node],
        inside: &[&Node],
        layers: &Layers<'_, '_>,
        chunks: &TimeChunks,
        kept: &Kept,
        wants_input: bool,
        dy: Buffer,
    ) -> Option<Buffer> {
        let input = leaves.first().map_or(0, |node| node.input.bytes());
        let states = self.border_states(inside, chunks);
        if states.bytes() > 0 {
            for range in chunks.ranges.iter().take(chunks.ranges.len().saturating_sub(1)) {
                let share = Share::of(range, layers.window);
                let x = self.input_chunk(leaves, kept, share);
                drop(self.chunk_of(inside, share, x));
            }
        }
        let mut dx = None;
        let mut of_states = None;
        for (index, range) in chunks.ranges.iter().enumerate().rev() {
            let share = Share::of(range, layers.window);
            let states = self.states_of_chunk(inside, index);
            let mut x = self.input_chunk(leaves, kept, share);
            if wants_input {
                // A leaf is a copy.
                x = self.heap.take(share.bytes(input));
            }
            // Candle's gradient of the states behind is copied.
            let copy = self.heap.take(of_states.as_ref().map_or(0, Buffer::bytes));
            let leaf = x.clone();
            let part = self.graph_of(inside, share, (x, wants_input), share.bytes(dy.bytes()));
            drop(copy);
            // The gradient of the states that Candle has added to zeros goes when that of the input has been.
            let beside = self.heap.take(states.0.as_ref().map_or(0, Buffer::bytes));
            of_states = self.gradient_of_states(states, of_states);
            if let Some(part) = part {
                let part = self.added_to_zeros(part);
                drop((beside, leaf));
                if input > dy.bytes() {
                    dx.get_or_insert_with(|| self.heap.take(input));
                }
                drop(part);
            }
        }
        drop(states);
        match (wants_input, dx) {
            (false, _) => None,
            (true, Some(dx)) => Some(dx),
            (true, None) => Some(self.in_place_of(dy, input, true)),
        }
    }
}

/// Bytes of the states of neurons.
fn states_of(layers: &[&Node]) -> usize {
    let of = |node: &&Node| match &node.body {
        Body::Layer { footprint, .. } => footprint.state,
        Body::Chain(nodes) => states_of(&nodes.iter().collect::<Vec<_>>()),
        Body::Join { branches, .. } => {
            branches.iter().map(|branch| states_of(&branch.iter().collect::<Vec<_>>())).sum()
        }
    };
    layers.iter().map(of).sum()
}
