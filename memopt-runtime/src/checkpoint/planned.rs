//! A model with its plan and its session.

use super::compressors::Compressors;
use super::fit;
use super::part::Planner;
use super::saved;
use crate::compress::SpikeCompressor;
use crate::module::{Checkpointable, Context, Session, Signal};
use crate::plan::Plan;
use crate::{Error, Result};
use candle_core::{ModuleT, Tensor};
use std::ops::Deref;
use std::sync::Arc;

/// A model that is trained as a plan says, with plain `loss.backward()`.
///
/// The model stays visible ([`Deref`]); its variables are the same. [`ModuleT`] runs it on a window `[T, N, ...]`.
#[derive(Debug, Clone)]
pub struct Planned<M> {
    model: M,
    plan: Arc<Plan>,
    compressors: Arc<Compressors>,
    /// The segments that are inside of no other.
    outermost: Arc<[String]>,
    verify: bool,
    session: Session,
}

impl<M: Checkpointable> Planned<M> {
    /// The model with this plan and session.
    ///
    /// # Errors
    /// If the plan names a part that the model does not have, a compressor that there is not, no chunks, segments that
    /// overlap, or one inside of chunks.
    pub fn new(model: M, plan: Plan, session: Session) -> Result<Self> {
        Self::with_compressors(model, plan, session, [])
    }

    /// The same, where the plan may also name compressors of one's own, by their
    /// [`name`](SpikeCompressor::name).
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_compressors(
        model: M,
        plan: Plan,
        session: Session,
        compressors: impl IntoIterator<Item = Arc<dyn SpikeCompressor>>,
    ) -> Result<Self> {
        let outermost = fit::check(&plan, &model.composition().unwrap_or_default())?.into();
        let compressors = Compressors::new(compressors)?;
        compressors.check(&plan)?;
        let (plan, compressors) = (Arc::new(plan), Arc::new(compressors));
        Ok(Planned { model, plan, compressors, outermost, verify: cfg!(debug_assertions), session })
    }

    /// Whether recomputes are verified by checksums: the weights that they read and the outputs that they give must be
    /// those of the first pass, bit for bit. By default in builds with debug assertions only, since it costs a pass over
    /// both.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// The output for the window `x`.
    ///
    /// # Errors
    /// Those of the parts, with the path of the segment. Then nothing has moved: see [`Session::forward`].
    pub fn run(&self, x: impl Into<Signal>, training: bool) -> Result<Signal> {
        self.forward(x.into(), training, Ok)
    }

    /// The output of a training forward of which nothing is left but the graph behind it: see [`Session::rehearse`].
    pub(crate) fn rehearse(&self, x: Signal) -> Result<Signal> {
        self.session.rehearse(|context| self.forward_in(x, context))
    }

    /// The same model, over the same variables and with the same session, under another plan.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_plan(self, plan: Plan) -> Result<Self> {
        let outermost = fit::check(&plan, &self.model.composition().unwrap_or_default())?.into();
        self.compressors.check(&plan)?;
        Ok(Planned { plan: Arc::new(plan), outermost, ..self })
    }

    fn forward<T>(&self, x: Signal, training: bool, output: impl FnOnce(Signal) -> Result<T>) -> Result<T> {
        self.session.forward(training, |context| output(self.forward_in(x, context)?))
    }

    fn forward_in(&self, x: Signal, context: &Context) -> Result<Signal> {
        let (plan, compressors) = (self.plan.clone(), self.compressors.clone());
        let planner = Arc::new(Planner { plan, compressors, begun: Default::default() });
        let mut context = context.clone().with_executor(planner.clone()).with_verification(self.verify);
        let y = self.model.forward(x, &mut context)?;
        self.check_all_begun(&planner)?;
        Ok(y)
    }

    /// A model written by hand may run something else than what it says it is made of.
    fn check_all_begun(&self, planner: &Planner) -> Result<()> {
        let begun = planner.begun.lock();
        match self.outermost.iter().find(|path| !begun.contains(*path)) {
            None => Ok(()),
            Some(path) => Err(Error::Plan {
                what: format!(
                    "`{path}` did not run: the forward of the model, or of a part around it, is not that of its \
                     composition; run `composition.run` in it"
                ),
            }),
        }
    }

    /// The output in evaluation, through the detached twin: no graph is built.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn predict(&self, x: impl Into<Signal>) -> Result<Signal> {
        self.session.forward(false, |context| self.model.detached().forward(x.into(), context))
    }

    /// The parts of the model as a tree, each segment with how it is kept.
    pub fn tree(&self) -> String {
        saved::tree(&self.model.composition().unwrap_or_default(), &self.plan)
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The same model, over the same variables, with a session of its own: for another thread.
    pub fn with_session(&self, session: Session) -> Self
    where
        M: Clone,
    {
        Planned { session, ..self.clone() }
    }

    /// The bare model.
    pub fn into_inner(self) -> M {
        self.model
    }
}

/// Checks that a plan fits a model, and that there are the compressors that it names.
pub(crate) fn check_compressors<M: Checkpointable>(
    model: &M,
    plan: &Plan,
    own: &[Arc<dyn SpikeCompressor>],
) -> Result<()> {
    check_plan(model, plan)?;
    Compressors::new(own.iter().cloned())?.check(plan)
}

/// Checks that a plan fits a model.
pub(crate) fn check_plan<M: Checkpointable>(model: &M, plan: &Plan) -> Result<()> {
    fit::check(plan, &model.composition().unwrap_or_default()).map(|_| ())
}

impl<M> Deref for Planned<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M: Checkpointable> ModuleT for Planned<M> {
    fn forward_t(&self, x: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        Ok(self.forward(x.into(), train, |y| y.into_dense("the model's output"))?)
    }
}
