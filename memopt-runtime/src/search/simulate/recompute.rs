//! Segments: what they keep, and their recompute as a whole.

use super::tape::{Entry, Kept, Parts, Segment, Tape};
use super::{mark_name, packed_bytes, Flow, Machine, Planned};
use crate::checkpoint::{chunk_layout, TimeChunks, Way};
use crate::module::{Step, Work};
use crate::plan::{Compressor, Keep};
use crate::search::heap::Buffer;
use crate::search::outline::{leaves, Node};

impl<'a> Machine<'a> {
    /// Runs nodes as a segment.
    pub(super) fn segment<'n>(
        &mut self,
        key: &str,
        nodes: &'n [Node],
        parent: &str,
        planned: &Planned,
        x: Flow,
        tape: &mut Tape<'n>,
    ) -> Flow {
        self.enter(key);
        let way = self.way(nodes, parent, planned.keep);
        self.depth += 1;
        let compressor = planned.compressor.as_ref();
        let y = match way {
            Way::TimeChunks(pieces) => self.in_time(key, nodes, pieces, compressor, x, tape),
            way => {
                let before = self.seconds;
                let parameters = nodes.iter().any(|node| !node.parameters.is_empty());
                let y = match &way {
                    Way::InPlace { .. } => self.first_pass_in_place(nodes, x.buffer.clone()),
                    _ => self.first_pass_by_graph(nodes, x.buffer.clone(), x.tracked || parameters),
                };
                let seconds = self.seconds - before;
                let parts = Parts::Whole { nodes, way };
                self.kept(key, parts, (nodes.first(), compressor), (x, parameters, seconds), tape, y)
            }
        };
        self.depth -= 1;
        self.mark(mark_name(key, "forward"));
        y
    }

    /// Keeps the input of a segment that ran, with the output `y`.
    #[allow(clippy::too_many_arguments)]
    fn kept<'n>(
        &mut self,
        key: &str,
        parts: Parts<'n>,
        (first, compressor): (Option<&Node>, Option<&Compressor>),
        (x, has_parameters, seconds): (Flow, bool, f64),
        tape: &mut Tape<'n>,
        y: Buffer,
    ) -> Flow {
        let tracked = x.tracked || has_parameters;
        if !tracked {
            // There is nothing to go back for.
            self.segments.entry(key.to_owned()).or_default();
            return Flow { buffer: y, tracked };
        }
        let kept = match first.and_then(|node| packed_bytes(node, compressor)) {
            Some(bytes) => {
                // The model's own input takes no buffer of the step's, but is packed like any other.
                self.work(Work::moving(first.map_or(0, |node| node.input.bytes())));
                Kept { input: self.heap.take(bytes), is_packed: true }
            }
            None => Kept { input: x.buffer.clone(), is_packed: false },
        };
        let segment = self.segments.entry(key.to_owned()).or_default();
        segment.held += kept.input.bytes();
        segment.recompute_seconds += seconds;
        tape.push(Entry::Segment(Segment { key: key.to_owned(), parts, kept, wants_input: x.tracked }));
        Flow { buffer: y, tracked }
    }

    /// Layers in time chunks, one segment behind the other.
    fn in_time<'n>(
        &mut self,
        key: &str,
        nodes: &'n [Node],
        pieces: Vec<TimeChunks>,
        compressor: Option<&Compressor>,
        mut x: Flow,
        tape: &mut Tape<'n>,
    ) -> Flow {
        let all = leaves(nodes);
        for (index, chunks) in pieces.into_iter().enumerate() {
            let leaves: Vec<&'n Node> = all.get(chunks.leaves.clone()).unwrap_or_default().to_vec();
            let before = self.seconds;
            let y = self.first_pass_in_time(&leaves, &chunks, x.buffer.clone());
            let seconds = self.seconds - before;
            // What flows between them has no declared compressor.
            let compressor = if index == 0 { compressor } else { Some(&Compressor::Auto) };
            let parameters = leaves.iter().any(|node| !node.parameters.is_empty());
            let first = leaves.first().copied();
            let parts = Parts::InTime { leaves, chunks };
            x = self.kept(key, parts, (first, compressor), (x, parameters, seconds), tape, y);
        }
        x
    }

    /// How the engine runs these nodes as a segment.
    fn way(&self, nodes: &[Node], parent: &str, keep: Keep) -> Way {
        let steps: Vec<Step> = nodes.iter().map(|node| node.step.clone()).collect();
        let all = leaves(nodes);
        let names = nodes.iter().filter_map(Node::name);
        let nested = keep == Keep::Recompute && self.plan.has_segments_inside(parent, names);
        let (Some(first), false) = (nodes.first(), nested) else { return Way::Graph };
        let of_layer = |index: usize| all.get(index).map_or(0, |node: &&Node| node.output.bytes());
        chunk_layout(&steps, keep, &first.input.dims, of_layer)
    }

    /// Goes back through a segment.
    pub(super) fn segment_back(&mut self, segment: Segment<'_>, dy: Buffer) -> Option<Buffer> {
        let Segment { key, parts, kept, wants_input } = segment;
        self.enter(&key);
        let with_weights: Vec<&Node> = match &parts {
            Parts::InTime { leaves, .. } => leaves.clone(),
            Parts::Whole { nodes, .. } => nodes.iter().collect(),
        };
        self.depth += 1;
        let dx = match parts {
            Parts::InTime { leaves, chunks } => self.back_in_time(&leaves, &chunks, kept, wants_input, dy),
            Parts::Whole { nodes, way: Way::InPlace { layer, groups } } => {
                self.back_in_place(nodes, kept, wants_input, (layer, &groups), dy)
            }
            Parts::Whole { nodes, way: Way::ChannelGraph { layer, groups } } => {
                self.back_by_channel_graph(nodes, kept, wants_input, (layer, &groups), dy)
            }
            Parts::Whole { nodes, .. } => self.back_by_graph(nodes, kept, wants_input, dy),
        };
        self.depth -= 1;
        self.deliver_weights(&with_weights, wants_input);
        self.mark(mark_name(&key, "backward"));
        dx
    }

    fn mark(&self, name: String) {
        if self.depth == 0 {
            self.heap.mark(name);
        }
    }

    /// The first pass keeps nothing; its outputs are copied out of it, if a graph is made.
    fn first_pass_by_graph(&mut self, nodes: &[Node], x: Buffer, tracked: bool) -> Buffer {
        let y = self.plainly(nodes, Flow { buffer: x, tracked: false }, None).buffer;
        if !tracked {
            return y;
        }
        let copy = self.heap.take(y.bytes());
        self.seconds += self.costs.seconds(Work::moving(2 * y.bytes()));
        copy
    }

    fn back_by_graph(&mut self, nodes: &[Node], kept: Kept, wants_input: bool, dy: Buffer) -> Option<Buffer> {
        let x = self.unpacked(kept, nodes.first(), wants_input);
        let mut tape = Tape::default();
        let y = self.plainly(nodes, Flow { buffer: x, tracked: wants_input }, Some(&mut tape));
        if tape.is_empty() && wants_input {
            // A leaf that is the output too is left to Candle.
            let sum = self.heap.take_foreign(dy.bytes());
            drop(self.heap.take(dy.bytes()));
            return Some(sum);
        }
        drop(y);
        self.backward(tape, dy)
    }

    /// The input of a segment again; what was kept goes.
    pub(super) fn unpacked(&mut self, kept: Kept, first: Option<&Node>, as_leaf: bool) -> Buffer {
        let bytes = first.map_or(0, |node| node.input.bytes());
        if !kept.is_packed && !as_leaf {
            return kept.input;
        }
        let x = self.heap.take(bytes);
        self.seconds += self.costs.seconds(Work::moving(bytes + kept.input.bytes()));
        drop(kept);
        x
    }
}
