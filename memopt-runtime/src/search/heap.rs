//! A heap that counts bytes and holds none: buffers are taken and dropped as the real ones are.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Counts the bytes of [`Buffer`]s that are alive.
#[derive(Debug, Clone, Default)]
pub(super) struct Heap(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    live: usize,
    peak: usize,
    since_mark: usize,
    /// Which part of the model runs.
    running: String,
    /// The part that ran at the peak.
    at_peak: String,
    /// The highest number of live bytes while each part ran.
    peaks: BTreeMap<String, usize>,
    marks: Vec<Mark>,
}

/// A moment of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// What has just been done.
    pub name: String,
    /// Bytes that are alive.
    pub live: usize,
    /// The highest number of them since the mark before.
    pub peak: usize,
}

/// Bytes that are alive until the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Buffer(Rc<Block>);

#[derive(Debug)]
struct Block {
    bytes: usize,
    /// Whether it is Candle's, which may have it elsewhere too.
    is_foreign: bool,
    heap: Heap,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.heap.0.borrow_mut().live -= self.bytes;
    }
}

impl Heap {
    /// A buffer of so many bytes.
    pub(super) fn take(&self, bytes: usize) -> Buffer {
        self.take_as(bytes, false)
    }

    /// The same of a tensor that Candle made: who wants to write over it copies it first.
    pub(super) fn take_foreign(&self, bytes: usize) -> Buffer {
        self.take_as(bytes, true)
    }

    /// The buffer itself, or a copy of one of Candle's.
    pub(super) fn own(&self, buffer: Buffer) -> Buffer {
        if buffer.0.is_foreign {
            self.take(buffer.bytes())
        } else {
            buffer
        }
    }

    fn take_as(&self, bytes: usize, is_foreign: bool) -> Buffer {
        let mut state = self.0.borrow_mut();
        state.live += bytes;
        let live = state.live;
        state.since_mark = state.since_mark.max(live);
        let running = state.running.clone();
        if live > state.peak {
            state.peak = live;
            state.at_peak.clone_from(&running);
        }
        let of_part = state.peaks.entry(running).or_default();
        *of_part = live.max(*of_part);
        drop(state);
        Buffer(Rc::new(Block { bytes, is_foreign, heap: self.clone() }))
    }

    /// From here on, this part of the model runs.
    pub(super) fn enter(&self, part: &str) {
        self.0.borrow_mut().running = part.to_owned();
    }

    /// Marks what has just been done.
    pub(super) fn mark(&self, name: String) {
        let mut state = self.0.borrow_mut();
        let mark = Mark { name, live: state.live, peak: state.since_mark };
        state.since_mark = state.live;
        state.marks.push(mark);
    }

    pub(super) fn live(&self) -> usize {
        self.0.borrow().live
    }

    pub(super) fn peak(&self) -> usize {
        self.0.borrow().peak
    }

    /// Forgets the peak so far.
    pub(super) fn restart(&self) {
        let mut state = self.0.borrow_mut();
        state.peak = state.live;
    }

    pub(super) fn at_peak(&self) -> String {
        self.0.borrow().at_peak.clone()
    }

    /// The highest number of live bytes while each part ran.
    pub(super) fn peaks(&self) -> BTreeMap<String, usize> {
        self.0.borrow().peaks.clone()
    }

    pub(super) fn marks(&self) -> Vec<Mark> {
        self.0.borrow().marks.clone()
    }
}

impl Buffer {
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Whether somebody else has it too.
    pub(super) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_lives_as_long_as_its_last_clone() {
        let heap = Heap::default();
        heap.enter("a");
        let x = heap.take(10);
        let kept = x.clone();
        assert!(x.is_shared());
        drop(x);
        assert_eq!(heap.live(), 10);
        heap.enter("b");
        drop(heap.take(5));
        heap.mark("b: forward".into());
        drop(kept);
        assert_eq!((heap.live(), heap.peak(), heap.at_peak().as_str()), (0, 15, "b"));
        assert_eq!(heap.peaks(), BTreeMap::from([("a".into(), 10), ("b".into(), 15)]));
        assert_eq!(heap.marks(), [Mark { name: "b: forward".into(), live: 10, peak: 15 }]);
        heap.restart();
        assert_eq!(heap.peak(), 0);
        drop(heap.own(heap.take(3)));
        assert_eq!(heap.peak(), 3);
        drop(heap.own(heap.take_foreign(3)));
        assert_eq!((heap.peak(), heap.live()), (6, 0));
    }
}
