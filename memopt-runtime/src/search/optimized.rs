//! A model with the plan that was found for it.

use super::summary::Summary;
use super::verify::{fallbacks, since};
use crate::checkpoint::Planned;
use crate::module::{Checkpointable, Session, Signal};
use crate::plan::Plan;
use crate::Result;
use candle_core::{Module, ModuleT, Tensor};
use std::collections::BTreeMap;
use std::ops::Deref;

/// A model with its plan and what the search says of it.
///
/// It is trained as before: [`ModuleT`], plain `loss.backward()`, any optimizer over the same variables. The model stays
/// visible ([`Deref`]).
#[derive(Debug, Clone)]
pub struct Optimized<M> {
    planned: Planned<M>,
    summary: Summary,
    /// Fallbacks before the first step.
    fallbacks: BTreeMap<String, u64>,
}

impl<M: Checkpointable> Optimized<M> {
    pub(super) fn new(planned: Planned<M>, summary: Summary) -> Self {
        Optimized { planned, summary, fallbacks: fallbacks() }
    }

    /// What the search did and found.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.planned.plan()
    }

    /// The session: random numbers, carried states.
    pub fn session(&self) -> &Session {
        self.planned.session()
    }

    /// The model with its plan, without the summary.
    pub fn planned(&self) -> &Planned<M> {
        &self.planned
    }

    /// The same model under another plan; the summary stays that of the search.
    ///
    /// # Errors
    /// If the plan does not fit the model.
    pub fn with_plan(self, plan: Plan) -> Result<Self> {
        let Optimized { planned, summary, fallbacks } = self;
        Ok(Optimized { planned: planned.with_plan(plan)?, summary, fallbacks })
    }

    /// The output for the window `x`.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn run(&self, x: impl Into<Signal>, training: bool) -> Result<Signal> {
        self.planned.run(x, training)
    }

    /// Inputs of segments that were kept as they are since the search, because their compressor could not hold them exactly:
    /// by path, how often. They cost memory, not exactness. Models in one process whose segments have the same paths are
    /// counted together.
    pub fn fallbacks(&self) -> BTreeMap<String, u64> {
        since(&self.fallbacks)
    }

    /// The model in evaluation, as Candle's [`Module`]: no graph is built.
    pub fn eval_view(&self) -> EvalView<'_, M> {
        EvalView { planned: &self.planned }
    }

    /// The bare model.
    pub fn into_inner(self) -> M {
        self.planned.into_inner()
    }
}

/// The parts of the model as a tree, each segment with how it is kept.
impl<M: Checkpointable> std::fmt::Display for Optimized<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.planned.tree())
    }
}

impl<M> Deref for Optimized<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.planned
    }
}

impl<M: Checkpointable> ModuleT for Optimized<M> {
    fn forward_t(&self, x: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        self.planned.forward_t(x, train)
    }
}

/// A model in evaluation.
#[derive(Debug, Clone, Copy)]
pub struct EvalView<'a, M> {
    planned: &'a Planned<M>,
}

impl<M: Checkpointable> Module for EvalView<'_, M> {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        Ok(self.planned.predict(x)?.into_dense("the model's output")?)
    }
}
