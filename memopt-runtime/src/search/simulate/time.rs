//! Segments in time chunks.

use super::tape::{Segment, Tape};
use super::{Flow, Machine};
use crate::search::heap::Buffer;
use crate::search::outline::Node;
use std::ops::Range;

impl<'a> Machine<'a> {
    pub(super) fn first_pass_in_time_chunks(
        &mut self,
        nodes: &[Node],
        _ranges: &[Range<usize>],
        _in_place: bool,
        x: Buffer,
    ) -> Buffer {
        self.plainly(nodes, Flow { buffer: x, tracked: false }, None).buffer
    }

    pub(super) fn back_in_time_chunks(
        &mut self,
        segment: Segment<'_>,
        _ranges: &[Range<usize>],
        _in_place: bool,
        dy: Buffer,
    ) -> Option<Buffer> {
        let Segment { nodes, kept, wants_input, .. } = segment;
        let x = self.unpacked(kept, nodes, wants_input);
        let mut tape = Tape::default();
        let y = self.plainly(nodes, Flow { buffer: x, tracked: wants_input }, Some(&mut tape));
        drop(y);
        self.backward(tape, dy)
    }
}
