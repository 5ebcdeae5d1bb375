//! Segments: what they keep, and their recompute as a whole.

use super::tape::{Entry, Kept, Segment, Tape};
use super::{mark_name, packed_bytes, Flow, Machine, Planned};
use crate::checkpoint::{chunk_layout, Way};
use crate::module::{Incoming, Step, Work};
use crate::plan::Keep;
use crate::search::heap::Buffer;
use crate::search::outline::{leaves, Node};
use crate::search::simulate::SegmentPrediction;

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
        self.depth += 1;
        let before = self.seconds;
        let tracked = x.tracked || nodes.iter().any(|node| !node.parameters.is_empty());
        let way = self.way(nodes, parent, planned.keep);
        let y = match &way {
            Way::Graph => self.first_pass_by_graph(nodes, x.buffer.clone()),
            Way::InPlace { .. } => self.first_pass_in_place(nodes, x.buffer.clone()),
            Way::TimeChunks { ranges, in_place } => {
                self.first_pass_in_time_chunks(nodes, ranges, *in_place, x.buffer.clone())
            }
            Way::ChannelGraph { .. } => self.first_pass_by_graph(nodes, x.buffer.clone()),
        };
        let of_forward = self.seconds - before;
        let first = nodes.first();
        let packed = first.and_then(|node| packed_bytes(node, planned.compressor.as_ref()));
        let moved = x.buffer.bytes();
        let kept = match packed {
            Some(bytes) => {
                self.work(Work::moving(moved));
                Kept { input: self.heap.take(bytes), is_packed: true, besides: vec![] }
            }
            None => Kept { input: x.buffer.clone(), is_packed: false, besides: vec![] },
        };
        let held = if kept.is_packed { kept.input.bytes() } else { x.buffer.bytes() };
        self.segments.insert(key.to_owned(), SegmentPrediction { held, recompute_seconds: of_forward });
        let wants_input = x.tracked;
        drop(x);
        self.depth -= 1;
        self.mark(mark_name(key, "forward"));
        if tracked {
            tape.push(Entry::Segment(Segment {
                key: key.to_owned(),
                parent: parent.to_owned(),
                nodes,
                keep: planned.keep,
                kept,
                wants_input,
            }));
        }
        Flow { buffer: y, tracked }
    }

    /// How the engine runs these nodes as a segment.
    fn way(&self, nodes: &[Node], parent: &str, keep: Keep) -> Way {
        let steps: Vec<Step> = nodes.iter().map(|node| node.step.clone()).collect();
        let all = leaves(nodes);
        let nested = keep == Keep::Recompute && self.has_segments_inside(nodes, parent);
        let (Some(first), false) = (nodes.first(), nested) else { return Way::Graph };
        let of_layer = |index: usize| all.get(index).map_or(0, |node: &&Node| node.output.bytes());
        chunk_layout(&steps, keep, &first.input.dims, of_layer)
    }

    fn has_segments_inside(&self, nodes: &[Node], parent: &str) -> bool {
        let prefixes: Vec<String> = nodes
            .iter()
            .filter_map(|node| node.name().map(|name| crate::path::joined(parent, name) + "."))
            .collect();
        self.plan.segments().any(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix.as_str())))
    }

    /// Goes back through a segment.
    pub(super) fn segment_back(&mut self, segment: Segment<'_>, dy: Buffer) -> Option<Buffer> {
        let key = segment.key.clone();
        self.enter(&key);
        self.depth += 1;
        let way = self.way(segment.nodes, &segment.parent, segment.keep);
        let dx = match way {
            Way::Graph => self.back_by_graph(segment, dy),
            Way::InPlace { layer, groups } => self.back_in_place(segment, layer, &groups, dy),
            Way::ChannelGraph { layer, groups } => self.back_by_channel_graph(segment, layer, &groups, dy),
            Way::TimeChunks { ranges, in_place } => self.back_in_time_chunks(segment, &ranges, in_place, dy),
        };
        self.depth -= 1;
        self.mark(mark_name(&key, "backward"));
        dx
    }

    fn mark(&self, name: String) {
        if self.depth == 0 {
            self.heap.mark(name);
        }
    }

    /// The first pass keeps nothing; its outputs are copied out of it.
    fn first_pass_by_graph(&mut self, nodes: &[Node], x: Buffer) -> Buffer {
        let y = self.plainly(nodes, Flow { buffer: x, tracked: false }, None).buffer;
        let copy = self.heap.take(y.bytes());
        self.seconds += self.costs.seconds(Work::moving(2 * y.bytes()));
        copy
    }

    fn back_by_graph(&mut self, segment: Segment<'_>, dy: Buffer) -> Option<Buffer> {
        let Segment { nodes, kept, wants_input, .. } = segment;
        let x = self.unpacked(kept, nodes, wants_input);
        let mut tape = Tape::default();
        let y = self.plainly(nodes, Flow { buffer: x, tracked: wants_input }, Some(&mut tape));
        drop(y);
        self.backward(tape, dy)
    }

    /// The input of a segment again; what was kept goes.
    pub(super) fn unpacked(&mut self, kept: Kept, nodes: &[Node], as_leaf: bool) -> Buffer {
        let bytes = nodes.first().map_or(0, |node| node.input.bytes());
        if !kept.is_packed && !as_leaf {
            return kept.input;
        }
        let x = self.heap.take(bytes);
        self.seconds += self.costs.seconds(Work::moving(bytes + kept.input.bytes()));
        drop(kept);
        x
    }

    /// The output of a layer for some of its time steps or channels.
    pub(super) fn layer_forward(&mut self, node: &Node, input: &Incoming, output: usize) -> Buffer {
        let footprint = node.footprint_for(input).unwrap_or_else(|| node.footprint());
        let y = self.heap.take(output);
        self.work(footprint.forward);
        y
    }
}
