//! Parts that are not segments: each layer keeps what its function does.

use super::tape::{Branch, Entry, Tape};
use super::{Flow, Machine};
use crate::module::{Footprint, Handing, Step};
use crate::search::heap::Buffer;
use crate::search::outline::{Body, Node};

impl<'a> Machine<'a> {
    /// Runs a part that no segment begins with.
    pub(super) fn part<'n>(&mut self, node: &'n Node, x: Flow, tape: Option<&mut Tape<'n>>) -> Flow {
        match &node.body {
            Body::Chain(nodes) => self.forward(nodes, &node.path, x, tape),
            Body::Layer { .. } => self.layer(node, x, tape),
            Body::Join { branches, .. } => self.join(node, branches, x, tape),
        }
    }

    pub(super) fn layer<'n>(&mut self, node: &'n Node, x: Flow, tape: Option<&mut Tape<'n>>) -> Flow {
        let footprint = node.footprint();
        self.enter(&node.path);
        let tracked = x.tracked || !node.parameters.is_empty();
        if footprint.is_view {
            return Flow { tracked, ..x };
        }
        let buffer = self.heap.take(node.output.bytes());
        self.work(footprint.forward);
        if let (Some(tape), true) = (tape, tracked) {
            let input = footprint.keeps_input.then_some(x.buffer);
            let besides = self.heap.take(footprint.keeps);
            tape.push(Entry::Layer { node, input, besides, wants_input: x.tracked });
        }
        Flow { buffer, tracked }
    }

    fn join<'n>(
        &mut self,
        node: &'n Node,
        branches: &'n [Vec<Node>],
        x: Flow,
        tape: Option<&mut Tape<'n>>,
    ) -> Flow {
        let Body::Join { footprint, keeps_outputs, .. } = &node.body else { return x };
        let keeps = tape.is_some();
        let mut ran = Vec::with_capacity(branches.len());
        let mut outputs = Vec::with_capacity(branches.len());
        for branch in branches {
            let mut of_branch = Tape::default();
            let y = self.forward(branch, &node.path, x.clone(), keeps.then_some(&mut of_branch));
            ran.push(Branch { tape: of_branch, output: y.buffer.bytes(), tracked: y.tracked });
            outputs.push(y.buffer);
        }
        drop(x);
        self.enter(&node.path);
        let buffer = self.heap.take(node.output.bytes());
        self.work(footprint.forward);
        let tracked = ran.iter().any(|branch| branch.tracked);
        if let (Some(tape), true) = (tape, tracked) {
            if !keeps_outputs {
                outputs.clear();
            }
            // Each is for the gradients of the others.
            let wants = |but: usize| ran.iter().enumerate().any(|(index, of)| index != but && of.tracked);
            let kept = outputs.into_iter().enumerate().map(|(index, y)| wants(index).then_some(y)).collect();
            tape.push(Entry::Join { node, branches: ran, outputs: kept });
        }
        Flow { buffer, tracked }
    }

    /// The way back through what ran; gives the gradient of its input, if one is wanted.
    pub(super) fn entry(&mut self, entry: Entry<'_>, dy: Buffer) -> Option<Buffer> {
        match entry {
            Entry::Layer { node, input, besides, wants_input } => {
                let dx = self.layer_back(node, (input, besides), wants_input, dy);
                self.deliver_weights(&[node], wants_input);
                dx
            }
            Entry::Join { node, branches, outputs } => self.join_back(node, branches, outputs, dy),
            Entry::Segment(segment) => self.segment_back(segment, dy),
        }
    }

    fn layer_back(
        &mut self,
        node: &Node,
        kept: (Option<Buffer>, Buffer),
        wants_input: bool,
        dy: Buffer,
    ) -> Option<Buffer> {
        self.enter(&node.path);
        let footprint = node.footprint();
        let dy = self.heap.own(dy);
        self.weight_gradients(node);
        self.work(footprint.backward);
        let dx = wants_input.then(|| self.input_gradient(dy, node.input.bytes(), &footprint));
        drop(kept);
        dx
    }

    /// The gradient of a layer's input, of so many bytes.
    pub(super) fn input_gradient(&mut self, dy: Buffer, bytes: usize, footprint: &Footprint) -> Buffer {
        match footprint.is_in_place && bytes <= dy.bytes() {
            true => {
                drop(self.heap.take(footprint.input_scratch));
                self.in_place_of(dy, bytes, true)
            }
            false => {
                let dx = self.heap.take(bytes);
                drop(self.heap.take(footprint.input_scratch));
                drop(dy);
                dx
            }
        }
    }

    /// The gradient of an input, in the place of that of the output where it is written there and fits.
    pub(super) fn in_place_of(&mut self, dy: Buffer, bytes: usize, is_in_place: bool) -> Buffer {
        match is_in_place && bytes <= dy.bytes() {
            true if bytes == dy.bytes() => dy,
            true => {
                drop(dy);
                self.heap.take(bytes)
            }
            false => {
                let dx = self.heap.take(bytes);
                drop(dy);
                dx
            }
        }
    }

    fn join_back(
        &mut self,
        node: &Node,
        branches: Vec<Branch<'_>>,
        outputs: Vec<Option<Buffer>>,
        dy: Buffer,
    ) -> Option<Buffer> {
        self.enter(&node.path);
        let (Body::Join { footprint, .. }, Step::Join { op, .. }) = (&node.body, &node.step) else {
            return None;
        };
        let dy = self.heap.own(dy);
        self.work(footprint.backward);
        let gradients = self.handed_on(op.handing(), &branches, outputs, dy);
        // A branch of nothing hands its gradient on at once.
        let mut dx: Option<Buffer> = None;
        let mut waiting = Vec::new();
        for (branch, gradient) in branches.into_iter().zip(gradients) {
            match gradient {
                Some(gradient) if branch.tape.is_empty() => dx = dx.or(Some(gradient)),
                Some(gradient) => waiting.push((branch.tape, gradient)),
                None => {}
            }
        }
        while let Some((tape, gradient)) = waiting.pop() {
            let of_branch = self.backward(tape, gradient);
            dx = dx.or(of_branch);
        }
        dx
    }

    /// The gradients of the branches, of those that want one.
    fn handed_on(
        &mut self,
        handing: Handing,
        branches: &[Branch<'_>],
        mut outputs: Vec<Option<Buffer>>,
        dy: Buffer,
    ) -> Vec<Option<Buffer>> {
        let mut dy = Some(dy);
        let last = branches.iter().rposition(|branch| branch.tracked);
        let mut gradients = Vec::with_capacity(branches.len());
        for (index, branch) in branches.iter().enumerate() {
            let gradient = match handing {
                // Of all, whether they want it or not.
                Handing::Parts => Some(self.heap.take(branch.output)),
                _ if !branch.tracked => None,
                Handing::Copies if Some(index) == last => dy.take(),
                Handing::Copies => Some(self.heap.take(branch.output)),
                Handing::Products { inverted } => {
                    let product = self.heap.take(branch.output);
                    // What it was made of goes, where there are two.
                    let of = |index: usize| if index == 0 { 1 } else { 0 };
                    let other = outputs.get_mut(of(index)).filter(|_| branches.len() == 2).map(Option::take);
                    match (inverted, index) {
                        // The negative of the product with the second.
                        (true, 0) => {
                            drop(other);
                            let negative = self.heap.take(branch.output);
                            drop(product);
                            Some(negative)
                        }
                        // The product with one minus the first.
                        (true, _) => {
                            drop(self.heap.take(branch.output));
                            Some(product)
                        }
                        (false, _) => Some(product),
                    }
                }
            };
            gradients.push(gradient);
        }
        drop((dy, outputs));
        gradients.into_iter().zip(branches).map(|(gradient, of)| gradient.filter(|_| of.tracked)).collect()
    }
}
