//! The forward of a whole model: what outlives it moves when it has succeeded.

use super::checkpointable::Checkpointable;
use super::context::Context;
use super::session::Session;
use super::states::States;
use crate::inside::is_inside_segment;
use crate::{Error, Result};
use candle_core::Tensor;
use parking_lot::Mutex;
use std::sync::Arc;

/// What layers want to be done when the forward has succeeded: running statistics moved, say.
#[derive(Clone, Default)]
pub(super) struct Moves(Arc<Mutex<Vec<Move>>>);

type Move = Box<dyn FnOnce() -> Result<()> + Send>;

impl Moves {
    pub(super) fn add(&self, what: impl FnOnce() -> Result<()> + Send + 'static) {
        self.0.lock().push(Box::new(what));
    }

    fn make(&self) -> Result<()> {
        let moves = std::mem::take(&mut *self.0.lock());
        moves.into_iter().try_for_each(|what| what())
    }
}

impl std::fmt::Debug for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Moves({})", self.0.lock().len())
    }
}

impl Session {
    /// Runs the forward `f` of a whole model: all of it, or nothing.
    ///
    /// Running statistics, carried states and the count of training forwards move when `f` has succeeded, in the order
    /// in which its layers ran. After an error or a panic they are as before, so that the next forward is what it would
    /// have been. (Layers that are run by hand, in a [`Context`] of one's own, move them at once.)
    ///
    /// ```
    /// use memopt_runtime::module::{Checkpointable, Session};
    /// use memopt_runtime::nn::Lif;
    /// # use candle_core::{DType, Device, Tensor};
    ///
    /// let session = Session::new(0);
    /// let lif = Lif::new(2.)?;
    /// let x = Tensor::ones((4, 1, 3), DType::F32, &Device::Cpu)?;
    /// session.forward(true, |context| lif.forward((&x).into(), context))?;
    /// assert_eq!(session.calls(), 1);
    ///
    /// let counts = Tensor::ones((4, 1, 3), DType::U8, &Device::Cpu)?;
    /// assert!(session.forward(true, |context| lif.forward((&counts).into(), context)).is_err());
    /// assert_eq!(session.calls(), 1);
    /// # Ok::<(), memopt_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `f`.
    pub fn forward<T>(&self, training: bool, f: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        if training && is_inside_segment() {
            return Err(Error::TrainedInsideSegment { model: "a model".into() });
        }
        let mut attempt = Attempt { session: self, training, call: self.begin(training), succeeded: false };
        let moves = Moves::default();
        let states = self.carried(training).map(|states| Arc::new(Mutex::new(states.lock().clone())));
        let mut context = Context::of_forward(self, training, attempt.call, states.clone(), moves.clone());
        let result = f(&mut context)?;
        moves.make()?;
        if let Some((carried, after)) = self.carried(training).zip(states) {
            let after: States = after.lock().clone();
            carried.lock().extend(&after);
        }
        attempt.succeeded = true;
        Ok(result)
    }
}

impl Session {
    /// Runs a training forward of which nothing is left: running statistics, the count and carried states stay as they
    /// are, whatever becomes of it.
    pub(crate) fn rehearse<T>(&self, f: impl FnOnce(&mut Context) -> Result<T>) -> Result<T> {
        if is_inside_segment() {
            return Err(Error::TrainedInsideSegment { model: "a model".into() });
        }
        let states = self.carried(true).map(|states| Arc::new(Mutex::new(states.lock().clone())));
        f(&mut Context::of_forward(self, true, self.calls(), states, Moves::default()))
    }
}

/// Takes the count back if the forward fails, unless another one has begun since.
struct Attempt<'a> {
    session: &'a Session,
    training: bool,
    call: u64,
    succeeded: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.training && !self.succeeded {
            self.session.take_back(self.call);
        }
    }
}

/// [`ModuleT::forward_t`](candle_core::ModuleT::forward_t) of a model or layer that stands by itself, in the session of
/// the process.
///
/// # Errors
/// Those of the parts, and if the output is not one tensor.
pub fn forward_t<M: Checkpointable>(model: &M, x: &Tensor, train: bool) -> candle_core::Result<Tensor> {
    let name = std::any::type_name::<M>();
    if train && is_inside_segment() {
        return Err(Error::TrainedInsideSegment { model: name.to_owned() }.into());
    }
    let forward = |context: &mut Context| model.forward(x.into(), context)?.into_dense(name);
    Ok(Session::of_process().forward(train, forward)?)
}
