//! What outlives a forward.

use super::norm_group::NormGroup;
use super::notes::Notes;
use super::states::States;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// How many [`FrozenNorms`] there are.
    frozen: Arc<AtomicUsize>,
    /// Over whose batches norms take their statistics, besides the own one.
    pub(super) norm_group: Option<Arc<dyn NormGroup>>,
}

impl Session {
    /// A session whose random numbers are those of `seed`, and whose neurons start anew at each call.
    pub fn new(seed: u64) -> Self {
        Session {
            seed,
            calls: Arc::default(),
            carried: None,
            notes: Notes::default(),
            frozen: Arc::default(),
            norm_group: None,
        }
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

    /// Freezes the batch norms of the forwards that begin while the guard lives, in this session and its clones.
    ///
    /// In training they then normalize by their running statistics, as in evaluation, and do not move them; their weights and
    /// all else train as always. A backward is that of its forward, whether or not the guard still lives. A segment of
    /// channel chunks is recomputed as a whole meanwhile, as in evaluation; [`notes`](Self::notes) says so.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use candle_nn::VarMap;
    /// use memopt_runtime::module::{Checkpointable, Session};
    /// use memopt_runtime::nn::{init::seeded, BatchNorm};
    ///
    /// let norm = BatchNorm::new(2, Default::default(), seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu))?;
    /// let session = Session::new(0);
    /// let x = Tensor::new(&[[[1f32, 2.]], [[3., 6.]]], &Device::Cpu)?; // [T, N, C]
    ///
    /// let frozen = session.freeze_norms();
    /// session.forward(true, |context| norm.forward((&x).into(), context))?;
    /// assert_eq!(norm.running_mean()?.to_vec1::<f32>()?, [0., 0.]);
    ///
    /// drop(frozen);
    /// session.forward(true, |context| norm.forward((&x).into(), context))?;
    /// assert_eq!(norm.running_mean()?.to_vec1::<f32>()?, [0.2, 0.4]);
    /// # Ok::<(), memopt_runtime::Error>(())
    /// ```
    #[must_use = "norms are frozen while the guard lives"]
    pub fn freeze_norms(&self) -> FrozenNorms {
        self.frozen.fetch_add(1, Ordering::Relaxed);
        FrozenNorms(self.frozen.clone())
    }

    /// The same session, in which batch norms take their statistics over the batches of several ranks.
    ///
    /// Ranks must run the same model under the same plan, in step.
    pub fn with_norm_group(self, group: Arc<dyn NormGroup>) -> Self {
        Session { norm_group: Some(group), ..self }
    }

    /// Whether batch norms are coupled with those of other ranks.
    pub fn has_norm_group(&self) -> bool {
        self.norm_group.is_some()
    }

    /// Whether batch norms are frozen now.
    pub fn has_frozen_norms(&self) -> bool {
        self.frozen.load(Ordering::Relaxed) > 0
    }

    /// Training forwards begun.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The seed of the random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Goes on as if so many training forwards had begun: the next one draws the random numbers that were next then. For
    /// resuming; no forward may be running.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use memopt_runtime::module::{Checkpointable, Session};
    /// use memopt_runtime::nn::Dropout;
    ///
    /// let dropout = Dropout::new(0.5)?;
    /// let x = Tensor::ones((2, 64), DType::F32, &Device::Cpu)?;
    /// let run = |session: &Session| {
    ///     let y = session.forward(true, |context| dropout.forward((&x).into(), context))?;
    ///     Ok::<_, memopt_runtime::Error>(y.into_dense("")?.to_vec2::<f32>()?)
    /// };
    /// let session = Session::new(3);
    /// run(&session)?;
    /// let second = run(&session)?;
    ///
    /// let resumed = Session::new(3);
    /// resumed.set_calls(1);
    /// assert_eq!(run(&resumed)?, second);
    /// # Ok::<(), memopt_runtime::Error>(())
    /// ```
    pub fn set_calls(&self, calls: u64) {
        self.calls.store(calls, Ordering::Relaxed);
    }

    /// The neuron states that are carried from call to call, of training and of evaluation; `None`: neurons start anew at each
    /// call.
    pub fn carried_states(&self) -> Option<[States; 2]> {
        self.carried.as_ref().map(|states| states.each_ref().map(|states| states.lock().clone()))
    }

    /// Goes on with such states; false, and nothing happens, if this session carries none.
    pub fn set_carried_states(&self, [training, evaluation]: [States; 2]) -> bool {
        let Some([own_training, own_evaluation]) = self.carried.as_ref() else { return false };
        *own_training.lock() = training;
        *own_evaluation.lock() = evaluation;
        true
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

/// Freezes the batch norms of a session while it lives: [`Session::freeze_norms`].
#[derive(Debug)]
pub struct FrozenNorms(Arc<AtomicUsize>);

impl Drop for FrozenNorms {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
