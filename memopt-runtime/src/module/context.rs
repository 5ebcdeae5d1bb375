//! What a forward needs and a recompute must repeat exactly.

use super::accumulators::Accumulators;
use super::executor::Executor;
use super::forward::Moves;
use super::notes::Notes;
use super::record::{NormStatistics, Record};
use super::session::Session;
use super::states::States;
use super::weight::Weight;
use crate::inside::is_inside_segment;
use crate::path::joined;
use crate::{Error, Result};
use candle_core::Tensor;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Carried through a forward, from part to part.
#[derive(Debug, Clone)]
pub struct Context {
    training: bool,
    /// Whether batch norms normalize by their running statistics, also in training.
    has_frozen_norms: bool,
    seed: u64,
    call: u64,
    /// Path of the part that runs.
    path: String,
    /// First time step of what runs, in the whole window.
    start: usize,
    /// Whether norms take the statistics of what runs, though it is a chunk of the window.
    norms_per_chunk: bool,
    /// Where neurons find and leave their states.
    states: Carried,
    /// Of the outermost segment that this runs in.
    record: Option<Arc<Mutex<Record>>>,
    /// Of the outermost segment, while it is gone back through.
    accumulators: Option<Arc<Accumulators>>,
    /// Who decides how parts are run; `None`: plainly.
    executor: Option<Arc<dyn Executor>>,
    /// How many layers ran at each path so far.
    uses: BTreeMap<String, usize>,
    /// What is to be done when the whole forward has succeeded; `None`: it is done at once.
    moves: Option<Moves>,
    notes: Notes,
    /// Whether recomputes of segments are verified.
    verify: bool,
    /// Whether it was made inside of a checkpointed closure, so that the recompute makes another one.
    made_inside: bool,
    /// Whether the outermost segment that knows it is inside of a closure that does not.
    in_closure: bool,
}

/// Where neurons find their states before the window, and leave those after it.
#[derive(Debug, Clone)]
enum Carried {
    /// They start anew and leave none.
    Nowhere,
    /// In the session: from call to call.
    Calls(Arc<Mutex<States>>),
    /// Between the time chunks of a segment, through which gradients go back.
    Chunks {
        /// After the last chunk, of the neurons that have run.
        states: Arc<Mutex<States>>,
        /// Those that are carried from call to call.
        before: Option<Arc<Mutex<States>>>,
    },
}

/// What the random numbers of one layer in one forward depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomKey {
    /// Seed of the session.
    pub seed: u64,
    /// Number of the training forward.
    pub call: u64,
    /// Path of the layer.
    pub path: String,
    /// First time step of what runs: random numbers of a step do not depend on how the window is cut.
    pub start: usize,
}

impl Context {
    /// The context of a training forward of layers that are run by hand: what outlives it moves at once, also if a
    /// later layer fails. ([`Session::forward`] runs a whole model.)
    pub fn training(session: &Session) -> Self {
        Self::new(session, true, session.begin(true), session.carried(true))
    }

    /// The context of an evaluation: running statistics, no dropout; nothing moves but the states of evaluation, where
    /// they are carried.
    pub fn evaluation(session: &Session) -> Self {
        Self::new(session, false, session.begin(false), session.carried(false))
    }

    /// The context of the forward of a whole model.
    pub(super) fn of_forward(
        session: &Session,
        training: bool,
        call: u64,
        states: Option<Arc<Mutex<States>>>,
        moves: Moves,
    ) -> Self {
        Context { moves: Some(moves), ..Self::new(session, training, call, states) }
    }

    fn new(session: &Session, training: bool, call: u64, states: Option<Arc<Mutex<States>>>) -> Self {
        Context {
            training,
            has_frozen_norms: session.has_frozen_norms(),
            seed: session.seed,
            call,
            path: String::new(),
            start: 0,
            norms_per_chunk: false,
            states: states.map_or(Carried::Nowhere, Carried::Calls),
            record: None,
            accumulators: None,
            executor: None,
            uses: BTreeMap::new(),
            moves: None,
            notes: session.notes.clone(),
            verify: cfg!(debug_assertions),
            made_inside: is_inside_segment(),
            in_closure: false,
        }
    }

    /// Moves something that outlives the forward, such as running statistics: when the whole forward has succeeded, or
    /// at once where layers are run by hand.
    ///
    /// A layer does so in its first pass only; see [`statistics`](Self::statistics). What can fail is to be checked before:
    /// if `what` fails, things that were moved before it stay so.
    ///
    /// # Errors
    /// Those of `what`, if it is done at once.
    pub fn when_done(&self, what: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        match &self.moves {
            Some(moves) => {
                moves.add(what);
                Ok(())
            }
            None => what(),
        }
    }

    /// With who decides how parts are run.
    pub fn with_executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    pub(super) fn executor(&self) -> Option<Arc<dyn Executor>> {
        self.executor.clone()
    }

    /// What a segment's first pass runs in: it records what it finds, in the record of the segment around it if there
    /// is one, and nothing in it is a segment, since nothing is kept.
    pub(crate) fn first_pass(&self) -> (Self, Arc<Mutex<Record>>) {
        let in_closure = self.is_in_closure();
        let record = self.record.clone().unwrap_or_default();
        let context = Context {
            record: Some(record.clone()),
            accumulators: None,
            executor: None,
            in_closure,
            ..self.clone()
        };
        (context, record)
    }

    /// What the recompute of a segment runs in. States are those of the record, and none are left.
    pub(crate) fn recompute(
        &self,
        record: Arc<Mutex<Record>>,
        accumulators: Option<Arc<Accumulators>>,
    ) -> Self {
        Context { record: Some(record), accumulators, states: Carried::Nowhere, ..self.clone() }
    }

    /// A copy for a segment of the parts called `names`, which knows of no other layers.
    pub(crate) fn for_segment(&mut self, names: &[&str]) -> Self {
        let uses = std::mem::take(&mut self.uses);
        let prefixes: Vec<String> = names.iter().map(|name| joined(&self.path, name)).collect();
        let is_in = |path: &str| {
            prefixes.iter().any(|prefix| {
                path.strip_prefix(prefix.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let mut copy = self.clone();
        copy.uses
            .extend(uses.iter().filter(|(path, _)| is_in(path)).map(|(path, count)| (path.clone(), *count)));
        self.uses = uses;
        copy
    }

    /// Runs `f` with nobody deciding how parts are run.
    pub(crate) fn plainly<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let executor = self.executor.take();
        let result = f(self);
        self.executor = executor;
        result
    }

    /// Whether recomputes of segments are verified.
    pub(crate) fn verifies(&self) -> bool {
        self.verify
    }

    /// Whether recomputes of segments are to be verified.
    pub(crate) fn with_verification(self, verify: bool) -> Self {
        Context { verify, ..self }
    }

    /// Goes on behind layers that ran in a copy of this context.
    pub(crate) fn go_on_behind(&mut self, copy: &Context) {
        for (path, &count) in &copy.uses {
            let uses = self.uses.entry(path.clone()).or_default();
            *uses = count.max(*uses);
        }
    }

    /// The context of the layer that begins to run here. Where several layers run at one path, as in a method that
    /// is a forward, the second has the path `path#2`, and so on, so that each has its own statistics, states, random
    /// numbers and sums. (Better names come from [`Context::enter`].)
    pub fn layer(&mut self) -> Self {
        let count = self.uses.entry(self.path.clone()).or_default();
        *count += 1;
        let path = if *count > 1 { format!("{}#{count}", self.path) } else { self.path.clone() };
        let uses = std::mem::take(&mut self.uses);
        let layer = Context { path, ..self.clone() };
        self.uses = uses;
        layer
    }

    /// What one time chunk of a segment runs in: it begins at step `start` of the segment's window, with these states,
    /// and leaves them as they are after its last step. Nothing in it is a segment.
    pub(crate) fn chunk(&self, start: usize, states: Arc<Mutex<States>>) -> Self {
        let start = self.start + start;
        let states = Carried::Chunks { states, before: self.carried_states() };
        Context { start, states, executor: None, ..self.clone() }
    }

    /// Notes that something is done in another way than asked; see [`Session::notes`].
    pub(crate) fn note(&self, what: String) {
        self.notes.add(what);
    }

    /// Each norm takes the statistics of the chunk that runs, not of the window.
    pub(crate) fn with_norms_per_chunk(self) -> Self {
        Context { norms_per_chunk: true, ..self }
    }

    /// The states that are carried from call to call, as they are now.
    pub(crate) fn carried_states(&self) -> Option<Arc<Mutex<States>>> {
        match &self.states {
            Carried::Calls(states) => Some(states.clone()),
            _ => None,
        }
    }

    /// The accumulators of the segment around this, while it is gone back through.
    pub(crate) fn accumulators(&self) -> Option<Arc<Accumulators>> {
        self.accumulators.clone()
    }

    /// Whether what runs is a time chunk of a segment.
    pub(crate) fn is_chunk(&self) -> bool {
        matches!(self.states, Carried::Chunks { .. })
    }

    /// Whether this is training: batch statistics (but see [`takes_batch_statistics`](Self::takes_batch_statistics)), dropout.
    pub fn is_training(&self) -> bool {
        self.training
    }

    /// Whether norms normalize by the statistics of the batch: in training, unless they are frozen
    /// ([`Session::freeze_norms`]).
    pub fn takes_batch_statistics(&self) -> bool {
        self.training && !self.has_frozen_norms
    }

    /// Path of the part that runs.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// First time step of what runs, in the whole window.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Runs `f` for the part called `name` inside this one.
    pub fn enter<T>(&mut self, name: &str, f: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = f(self);
        self.path.truncate(length);
        result
    }

    /// A weight of the layer that runs, as its function uses it. `name` tells the layer's weights apart.
    pub fn weight(&self, name: &'static str, tensor: &Tensor) -> Weight {
        Weight::new(&self.path, name, tensor, self.accumulators.clone())
    }

    /// The state of the neuron layer that runs, before the first step; `None`: it starts at rest.
    ///
    /// # Errors
    /// If states are carried from call to call, and this is inside of a closure that would move them twice.
    pub fn initial_state(&self) -> Result<Option<Tensor>> {
        match &self.states {
            Carried::Chunks { states, .. } => {
                if let Some(state) = states.lock().get(&self.path) {
                    return Ok(Some(state.clone()));
                }
            }
            Carried::Calls(_) => self.check_place()?,
            Carried::Nowhere => {}
        }
        // What the first pass of a segment began with is what its recompute begins with.
        let mut record = self.record.as_ref().map(|record| record.lock());
        if let Some(recorded) = record.as_ref().and_then(|record| record.initial.get(&self.path)) {
            return Ok(Some(recorded.clone()));
        }
        let (Carried::Calls(states) | Carried::Chunks { before: Some(states), .. }) = &self.states else {
            return Ok(None);
        };
        let state = states.lock().get(&self.path).cloned();
        if let (Some(record), Some(state)) = (&mut record, &state) {
            record.initial.set(&self.path, state.clone());
        }
        Ok(state)
    }

    /// Whether the state after the last step is wanted.
    pub fn wants_final_state(&self) -> bool {
        !matches!(self.states, Carried::Nowhere)
    }

    /// Leaves the state after the last step. Gradients do not go back into earlier calls.
    pub fn set_final_state(&self, state: Tensor) {
        match &self.states {
            Carried::Nowhere => {}
            Carried::Calls(states) => states.lock().set(&self.path, state.detach()),
            Carried::Chunks { states, .. } => states.lock().set(&self.path, state),
        }
    }

    /// The statistics of the norm that runs: those that the first pass recorded, else `compute`'s, which are recorded.
    ///
    /// The second value says whether they were computed now, in a first pass: then running statistics move.
    ///
    /// # Errors
    /// Those of `compute`.
    pub fn statistics(
        &self,
        compute: impl FnOnce() -> Result<NormStatistics>,
    ) -> Result<(Arc<NormStatistics>, bool)> {
        let window = if self.norms_per_chunk { self.start } else { 0 };
        let key = (self.path.clone(), window);
        if let Some(record) = &self.record {
            if let Some(recorded) = record.lock().statistics.get(&key) {
                return Ok((recorded.clone(), false));
            }
        }
        if self.takes_batch_statistics() && !self.norms_per_chunk && self.is_chunk() {
            // It would see the time steps of the chunk only.
            let (segment, part) = (self.path.clone(), self.path.clone());
            return Err(Error::NotTimeChunkable { segment, part });
        }
        if self.takes_batch_statistics() {
            self.check_place()?;
        }
        let computed = Arc::new(compute()?);
        if let Some(record) = &self.record {
            record.lock().statistics.insert(key, computed.clone());
        }
        Ok((computed, true))
    }

    /// The statistics that the first pass recorded for the norm that runs.
    ///
    /// # Errors
    /// If it recorded none.
    pub(crate) fn recorded_statistics(&self) -> Result<Arc<NormStatistics>> {
        let recorded =
            self.record.as_ref().and_then(|r| r.lock().statistics.get(&(self.path.clone(), 0)).cloned());
        recorded.ok_or_else(|| Error::RecomputeDiffers {
            segment: self.path.clone(),
            what: "the norm's statistics were not recorded".into(),
        })
    }

    /// What the random numbers of the layer that runs depend on.
    ///
    /// # Errors
    /// If this is inside of a closure that would draw others in its recompute.
    pub fn random_key(&self) -> Result<RandomKey> {
        if self.training && self.made_inside {
            return Err(Error::TrainedInsideSegment { model: self.path.clone() });
        }
        Ok(RandomKey { seed: self.seed, call: self.call, path: self.path.clone(), start: self.start })
    }

    /// Refuses a checkpointed closure around this, with a context that knows nothing of it: what outlives the
    /// forward would move in the first pass and again in the recompute.
    fn check_place(&self) -> Result<()> {
        match self.made_inside || self.is_in_closure() {
            true => Err(Error::TrainedInsideSegment { model: self.path.clone() }),
            false => Ok(()),
        }
    }

    fn is_in_closure(&self) -> bool {
        self.in_closure || (self.record.is_none() && is_inside_segment())
    }
}
