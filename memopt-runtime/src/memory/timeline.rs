//! Timelines: the memory of a training step as a curve of named marks.
//!
//! A thread starts a timeline; code that it runs sets marks without knowing whether one is recording. The bytes are
//! those of all threads. A mark ends an interval: it holds the bytes that are live at the mark and the highest
//! number of them since the previous one.
//!
//! The record does not show itself: room for marks is taken before the start, and what naming and storing a mark
//! takes beyond it is subtracted from all later numbers. Only memory that a naming closure takes and gives back
//! before it returns is in the peak of the interval that follows.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::counter::{Reading, Watch};
use super::curve::{Curve, Mark};
use super::{is_counting, thread, MemoryError, Scope};

/// Marks that fit before the record has to grow.
const ROOM: usize = 256;

thread_local! {
    /// Whether marks are to be recorded: all that a mark looks at where none is.
    static RECORDING: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Rc<RefCell<Record>>>> = const { RefCell::new(None) };
}

/// The timeline that is recording on this thread; [`finish`](Self::finish) turns it into a [`Curve`].
///
/// ```
/// use memopt_runtime::memory::{self, CountingAllocator, Timeline};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator::system();
///
/// fn main() -> Result<(), memory::MemoryError> {
///     let timeline = Timeline::start()?;
///     let activations = vec![0_u8; 2_000_000];
///     memory::mark("forward");
///     drop(vec![0_u8; 1_000_000]);
///     drop(activations);
///     memory::mark("backward");
///     let curve = timeline.finish();
///
///     let live: Vec<isize> = curve.marks().iter().map(|mark| mark.live).collect();
///     assert_eq!(live, [2_000_000, 0, 0]);
///     assert_eq!(curve.peak(), 3_000_000);
///     println!("{curve}");
///     Ok(())
/// }
/// ```
///
/// A thread has one timeline at a time, so that each mark has one place to go; a [`Scope`] measures a part of it.
/// Dropped without `finish`, the record is thrown away. Marks of other threads are not in it, their bytes are.
#[derive(Debug)]
#[must_use = "a timeline ends when it is dropped; `finish` it to get its curve"]
pub struct Timeline {
    record: Rc<RefCell<Record>>,
}

impl Timeline {
    /// Begins to record the marks of this thread.
    ///
    /// # Errors
    ///
    /// [`MemoryError::NotCounting`] if the counting allocator is not installed,
    /// [`MemoryError::TimelineRunning`] if this thread has a timeline, and [`MemoryError::TooManyScopes`] if
    /// [`Scope::LIMIT`] scopes and timelines are active.
    pub fn start() -> Result<Self, MemoryError> {
        if !is_counting() {
            return Err(MemoryError::NotCounting);
        }
        if with_record(|_| ()).is_some() {
            return Err(MemoryError::TimelineRunning);
        }
        let record = Record::begin().ok_or(MemoryError::TooManyScopes { limit: Scope::LIMIT })?;
        // Fails in a thread that is ending, whose marks are then not found; start and end are measured still.
        let _ = CURRENT.try_with(|current| current.replace(Some(Rc::clone(&record))));
        set_recording(true);
        Ok(Self { record })
    }

    /// Ends the record. The curve has one more mark than were set, `end`, for the time since the last one.
    pub fn finish(self) -> Curve {
        self.record.borrow_mut().finish()
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        set_recording(false);
        let _ = CURRENT.try_with(RefCell::take);
    }
}

/// Sets a mark in the timeline of this thread; does nothing where none is recording.
///
/// A name that has to be composed is for [`mark_with`], which composes it only if it is needed and keeps it out of
/// what it measures.
#[inline]
pub fn mark(name: &'static str) {
    mark_with(|| name);
}

/// Sets a mark in the timeline of this thread, named by a closure that is called only if one is recording.
///
/// ```
/// let segment = 3;
/// memopt_runtime::memory::mark_with(|| format!("backward of segment {segment}"));
/// ```
///
/// Marks that the closure sets itself are ignored. If it panics, there is no mark, and the peak before it is lost.
#[inline]
pub fn mark_with<N: Into<Cow<'static, str>>>(name: impl FnOnce() -> N) {
    if RECORDING.try_with(Cell::get).unwrap_or(false) {
        record_mark(|| name().into());
    }
}

#[cold]
fn record_mark(name: impl FnOnce() -> Cow<'static, str>) {
    let Some((at, reading)) = with_record(|record| (record.began.elapsed(), record.watch.restart())) else {
        return;
    };
    let before = thread::live();
    let paused = Paused::begin();
    // Not while the record is borrowed: it is code of the caller.
    let name = name();
    drop(paused);
    with_record(|record| {
        let mark = record.mark(name, reading, at);
        record.marks.push(mark);
        record.own += thread::live() - before;
    });
}

/// No marks while it lives, also if the caller's code unwinds.
struct Paused;

impl Paused {
    fn begin() -> Self {
        set_recording(false);
        Self
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        set_recording(true);
    }
}

fn set_recording(recording: bool) {
    let _ = RECORDING.try_with(|cell| cell.set(recording));
}

fn with_record<T>(act: impl FnOnce(&mut Record) -> T) -> Option<T> {
    let act = |current: &RefCell<Option<Rc<RefCell<Record>>>>| {
        current.borrow().as_ref().map(|record| act(&mut record.borrow_mut()))
    };
    CURRENT.try_with(act).ok().flatten()
}

#[derive(Debug)]
struct Record {
    began: Instant,
    watch: Watch,
    start: usize,
    marks: Vec<Mark>,
    /// Bytes of the record beyond those taken before the start.
    own: isize,
}

impl Record {
    fn begin() -> Option<Rc<RefCell<Self>>> {
        let marks = Vec::with_capacity(ROOM);
        let (watch, start) = Watch::begin()?;
        let before = thread::live();
        let record = Rc::new(RefCell::new(Self { began: Instant::now(), watch, start, marks, own: 0 }));
        record.borrow_mut().own = thread::live() - before;
        Some(record)
    }

    fn mark(&self, name: Cow<'static, str>, reading: Reading, elapsed: Duration) -> Mark {
        let above_start = |bytes: usize| bytes as isize - self.start as isize - self.own;
        let live = above_start(reading.live);
        // Bytes of the previous mark may have been subtracted from a peak that was reached before it took them.
        let previous = self.marks.last().map_or(0, |mark| mark.live);
        let peak_since_previous = above_start(reading.peak).max(previous);
        Mark { name, live, peak_since_previous, elapsed }
    }

    fn finish(&mut self) -> Curve {
        let (at, reading) = (self.began.elapsed(), self.watch.read());
        let mark = self.mark(Cow::Borrowed("end"), reading, at);
        self.marks.push(mark);
        Curve { start: self.start, marks: std::mem::take(&mut self.marks) }
    }
}
