//! Threads that make batches ahead.
//!
//! They claim samples, one after the other, of batches that may be begun; who brings the last sample of a batch makes the batch. The
//! caller takes the batches in their order. Everything is under one lock, which nobody holds while user code runs.

use super::work::Work;
use super::DataError;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The threads of one epoch. Dropping it stops them, and waits for the samples that they are at.
pub(super) struct Workers<S, B> {
    shared: Arc<Shared<S, B>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<S, B> {
    work: Arc<Work<S, B>>,
    /// Batches that may be there beyond the one that the caller has.
    prefetch: usize,
    state: Mutex<State<S, B>>,
    /// A sample may be claimed, or all is over.
    to_do: Condvar,
    /// A batch is done.
    done: Condvar,
}

struct State<S, B> {
    /// The batch that is handed out next.
    front: usize,
    /// The batch and the place in it that are claimed next.
    claim: (usize, usize),
    /// The batches from `front` on that were begun.
    begun: VecDeque<Begun<S, B>>,
    /// Whether the caller waits, and so has no batch.
    waited_for: bool,
    stopped: bool,
    panicked: bool,
}

struct Begun<S, B> {
    samples: Vec<Option<Result<S, DataError>>>,
    missing: usize,
    batch: Option<Result<B, DataError>>,
}

impl<S: Send + 'static, B: Send + 'static> Workers<S, B> {
    /// Starts threads that make the batches from `first` on.
    ///
    /// # Errors
    /// [`DataError::Thread`]; those that were started are stopped.
    pub(super) fn start(
        work: Arc<Work<S, B>>,
        first: usize,
        threads: usize,
        prefetch: usize,
    ) -> Result<Self, DataError> {
        let state = Mutex::new(State {
            front: first,
            claim: (first, 0),
            begun: VecDeque::new(),
            waited_for: false,
            stopped: false,
            panicked: false,
        });
        let shared = Shared { work, prefetch, state, to_do: Condvar::new(), done: Condvar::new() };
        let mut workers = Workers { shared: Arc::new(shared), threads: Vec::new() };
        for number in 0..threads {
            let shared = workers.shared.clone();
            let thread = Builder::new().name(format!("memopt-data-{number}")).spawn(move || shared.run());
            workers.threads.push(thread.map_err(|source| DataError::Thread { source })?);
        }
        Ok(workers)
    }
}

impl<S, B> Workers<S, B> {
    /// The next batch, when it is there.
    ///
    /// # Errors
    /// That of the batch; [`DataError::ThreadPanicked`].
    pub(super) fn next(&self) -> Result<B, DataError> {
        let Shared { state, to_do, done, .. } = &*self.shared;
        let mut state = state.lock();
        state.waited_for = true;
        to_do.notify_all();
        loop {
            if let Some(batch) = state.begun.front_mut().and_then(|begun| begun.batch.take()) {
                state.begun.pop_front();
                state.front += 1;
                state.waited_for = false;
                to_do.notify_all();
                return batch;
            }
            if state.panicked {
                return Err(DataError::ThreadPanicked);
            }
            done.wait(&mut state);
        }
    }
}

impl<S, B> Drop for Workers<S, B> {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.to_do.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of it was reported by `next`, or nobody wants its batch.
            let _ = thread.join();
        }
    }
}

impl<S, B: Send> Shared<S, B> {
    fn run(&self) {
        let _tells = TellsOfPanic(self);
        while let Some((batch, place)) = self.claimed() {
            let sample = self.work.sample(batch, place);
            if let Some(samples) = self.brought(batch, place, sample) {
                let made = self.work.batch(batch, samples);
                let mut state = self.state.lock();
                let front = state.front;
                if let Some(begun) = state.begun.get_mut(batch - front) {
                    begun.batch = Some(made);
                }
                drop(state);
                self.done.notify_all();
            }
        }
    }

    /// The next sample to get, when there may be one; `None` when there is nothing more to do.
    fn claimed(&self) -> Option<(usize, usize)> {
        let mut state = self.state.lock();
        loop {
            let (batch, place) = state.claim;
            if state.stopped || batch >= self.work.batches {
                return None;
            }
            // Without prefetching, a batch is begun when the caller waits for it.
            if batch < state.front + self.prefetch.max(usize::from(state.waited_for)) {
                let size = self.work.indices(batch).len();
                if place == 0 {
                    let samples = std::iter::repeat_with(|| None).take(size).collect();
                    state.begun.push_back(Begun { samples, missing: size, batch: None });
                }
                state.claim = if place + 1 < size { (batch, place + 1) } else { (batch + 1, 0) };
                return Some((batch, place));
            }
            self.to_do.wait(&mut state);
        }
    }

    /// Takes in a sample; all samples of its batch, if it was the last one.
    fn brought(
        &self,
        batch: usize,
        place: usize,
        sample: Result<S, DataError>,
    ) -> Option<impl Iterator<Item = Result<S, DataError>>> {
        let mut state = self.state.lock();
        let front = state.front;
        let begun = state.begun.get_mut(batch - front)?;
        begun.samples[place] = Some(sample);
        begun.missing -= 1;
        (begun.missing == 0).then(|| std::mem::take(&mut begun.samples).into_iter().flatten())
    }
}

/// Wakes the caller if the thread ends by a panic, as of the `drop` of a sample.
struct TellsOfPanic<'a, S, B>(&'a Shared<S, B>);

impl<S, B> Drop for TellsOfPanic<'_, S, B> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().panicked = true;
            self.0.done.notify_all();
        }
    }
}
