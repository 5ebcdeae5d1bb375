//! What outlives a forward.

use super::notes::Notes;
use super::states::States;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// The random key, the number of training forwards so far, and the neuron states that are carried from call to call.
///
/// A model that several threads use at once has a session for each.
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) seed: u64,
    calls: Arc<AtomicU64>,
    /// Of training, and of evaluation, which must not disturb it.
    carried: Option<[Arc<Mutex<States>>; 2]>,
    pub(super) notes: Notes,
}

impl Session {
    /// A session whose random numbers are those of `seed`, and whose neurons start anew at each call.
    pub fn new(seed: u64) -> Self {
        Session { seed, calls: Arc::default(), carried: None, notes: Notes::default() }
    }

    /// The session of models that are run without one: seed 0, one counter for the process.
    pub fn of_process() -> &'static Self {
        static PROCESS: LazyLock<Session> = LazyLock::new(|| Session::new(0));
        &PROCESS
    }

    /// Neurons go on where the last call left them, in training and in evaluation each by itself. Gradients do not go back into earlier calls.
    pub fn carry_states(mut self) -> Self {
        self.carried = Some(Default::default());
        self
    }

    /// Forgets the carried states.
    pub fn reset_states(&self) {
        for states in self.carried.iter().flatten() {
            *states.lock() = States::default();
        }
    }

    /// What forwards did in another way than they were asked to, each once: more time chunks than time steps, say.
    pub fn notes(&self) -> Vec<String> {
        self.notes.all()
    }

    /// Training forwards begun.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The number of the forward that begins now; only training moves the counter.
    pub(super) fn begin(&self, training: bool) -> u64 {
        match training {
            true => self.calls.fetch_add(1, Ordering::Relaxed),
            false => self.calls(),
        }
    }

    /// Undoes the [`begin`](Self::begin) of a training forward that failed.
    pub(super) fn take_back(&self, call: u64) {
        // Where another one began meanwhile, its number stays its own.
        let _ = self.calls.compare_exchange(call + 1, call, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn carried(&self, training: bool) -> Option<Arc<Mutex<States>>> {
        self.carried.as_ref().map(|states| states[usize::from(!training)].clone())
    }
}
