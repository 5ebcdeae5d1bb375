//! A model with its plan and its session.

use super::fit;
use super::part::Planner;
use crate::module::{Checkpointable, Context, Session, Signal};
use crate::plan::Plan;
use crate::Result;
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
    session: Session,
}

impl<M: Checkpointable> Planned<M> {
    /// The model with this plan and session.
    ///
    /// # Errors
    /// If the plan names a part that the model does not have, or segments that overlap, or one inside of chunks.
    pub fn new(model: M, plan: Plan, session: Session) -> Result<Self> {
        fit::check(&plan, &model.composition().unwrap_or_default())?;
        Ok(Planned { model, plan: Arc::new(plan), session })
    }

    /// The output for the window `x`.
    ///
    /// # Errors
    /// Those of the parts, with the path of the segment.
    pub fn run(&self, x: impl Into<Signal>, training: bool) -> Result<Signal> {
        let context = match training {
            true => Context::training(&self.session),
            false => Context::evaluation(&self.session),
        };
        self.model.forward(x.into(), &mut context.with_executor(Arc::new(Planner(self.plan.clone()))))
    }

    /// The output in evaluation, through the detached twin: no graph is built.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn predict(&self, x: impl Into<Signal>) -> Result<Signal> {
        self.model.detached().forward(x.into(), &mut Context::evaluation(&self.session))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The bare model.
    pub fn into_inner(self) -> M {
        self.model
    }
}

impl<M> Deref for Planned<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M: Checkpointable> ModuleT for Planned<M> {
    fn forward_t(&self, x: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        Ok(self.run(x, train)?.into_dense("the model's output")?)
    }
}
