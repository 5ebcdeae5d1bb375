//! A model with its plan and its session.

use super::part::Planner;
use crate::module::{Checkpointable, Composition, Context, Session, Signal, Step};
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
    session: Session,
}

impl<M: Checkpointable> Planned<M> {
    /// The model with this plan and session.
    ///
    /// # Errors
    /// If the plan names a part that the model does not have.
    pub fn new(model: M, plan: Plan, session: Session) -> Result<Self> {
        let names = model.composition().map_or_else(Vec::new, |composition| paths(&composition, ""));
        for (path, _) in plan.segments() {
            let known = match path.split_once("..") {
                None => names.iter().any(|name| name == path),
                Some((first, last)) => {
                    let parent =
                        first.rsplit_once('.').map_or(String::new(), |(parent, _)| format!("{parent}."));
                    let end = format!("{parent}{last}");
                    names.iter().any(|name| name == first) && names.contains(&end)
                }
            };
            if !known {
                let what = format!("the model has no part `{path}`; its parts are: {}", names.join(", "));
                return Err(Error::Plan { what });
            }
        }
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

/// The paths of all parts of a composition, at all depths.
fn paths(composition: &Composition, parent: &str) -> Vec<String> {
    let mut found = Vec::new();
    for step in composition.steps() {
        match step {
            Step::Part { name, part, .. } => {
                let path = if parent.is_empty() { name.to_string() } else { format!("{parent}.{name}") };
                let inside = part.composition().map_or_else(Vec::new, |inside| paths(&inside, &path));
                found.push(path);
                found.extend(inside);
            }
            Step::Join { branches, .. } => {
                found.extend(branches.iter().flat_map(|branch| paths(branch, parent)));
            }
        }
    }
    found
}
