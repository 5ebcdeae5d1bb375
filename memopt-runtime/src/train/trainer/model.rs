//! What a trainer trains.

use crate::checkpoint::{Planned, SavedPlan};
use crate::module::{Checkpointable, Session};
use crate::plan::{Keep, Plan};
use crate::search::Optimized;
use crate::{Error, Result};
use std::ops::Deref;

/// A model as a trainer sees it: [`Planned`], [`Optimized`], or anything that runs by itself in a [`Bare`].
///
/// How it is run is for the closure of the loss to say.
pub trait Trainable {
    /// The session of its forwards: random numbers, carried states.
    fn session(&self) -> &Session;

    /// Its plan, with the fingerprint of the model; `None`: it has none.
    fn saved_plan(&self) -> Option<SavedPlan>;

    /// Whether a training of a model with such a plan can go on with this one. Plans are lossless, so that another one gives the
    /// same bits; those with time chunks whose norms go each by its chunk are not, and must be the same.
    ///
    /// # Errors
    /// If the plan was made for another model, or the results would be others.
    fn check_plan(&self, saved: Option<&SavedPlan>) -> Result<()>;
}

impl<M: Checkpointable> Trainable for Planned<M> {
    fn session(&self) -> &Session {
        self.session()
    }

    fn saved_plan(&self) -> Option<SavedPlan> {
        Some(SavedPlan::new(&**self, self.plan().clone()))
    }

    fn check_plan(&self, saved: Option<&SavedPlan>) -> Result<()> {
        let then = saved.map(|saved| saved.for_model(&**self)).transpose()?.unwrap_or_default();
        check_inexact(&then, self.plan())
    }
}

impl<M: Checkpointable> Trainable for Optimized<M> {
    fn session(&self) -> &Session {
        self.session()
    }

    fn saved_plan(&self) -> Option<SavedPlan> {
        self.planned().saved_plan()
    }

    fn check_plan(&self, saved: Option<&SavedPlan>) -> Result<()> {
        self.planned().check_plan(saved)
    }
}

/// A model without a plan: a layer, a list of them, a closure of Candle code; any type.
///
/// ```
/// use candle_core::{Result, Tensor};
/// use memopt_runtime::train::Bare;
///
/// let net = Bare::new(|x: &Tensor| -> Result<Tensor> { x.relu() });
/// let y = (*net)(&Tensor::new(&[-1f32, 2.], &candle_core::Device::Cpu)?)?;
/// assert_eq!(y.to_vec1::<f32>()?, [0., 2.]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Bare<M> {
    model: M,
    session: Session,
}

impl<M> Bare<M> {
    /// A model whose forwards run in the [session of the process](Session::of_process), as `forward_t` of our layers does.
    pub fn new(model: M) -> Self {
        Self::in_session(model, Session::of_process().clone())
    }

    /// A model whose forwards run in this session, or that has random numbers of its own and does not care.
    pub fn in_session(model: M, session: Session) -> Self {
        Bare { model, session }
    }
}

impl<M> Deref for Bare<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}

impl<M> Trainable for Bare<M> {
    fn session(&self) -> &Session {
        &self.session
    }

    fn saved_plan(&self) -> Option<SavedPlan> {
        None
    }

    fn check_plan(&self, saved: Option<&SavedPlan>) -> Result<()> {
        let then = saved.map(|saved| saved.plan().clone()).unwrap_or_default();
        check_inexact(&then, &Plan::new())
    }
}

/// An error unless two plans have the same segments that change the result.
fn check_inexact(then: &Plan, now: &Plan) -> Result<()> {
    let inexact = |plan: &Plan| -> Vec<String> {
        let all = plan.segments().filter(|(_, segment)| matches!(segment.keep, Keep::InexactTimeChunks(_)));
        all.map(|(path, segment)| format!("`{path}: {}`", segment.keep)).collect()
    };
    let (then, now) = (inexact(then), inexact(now));
    if then == now {
        return Ok(());
    }
    let words = |all: Vec<String>| if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    let differences =
        format!("segments whose norms go by the chunk: {} then, {} now", words(then), words(now));
    Err(Error::OtherConfiguration { differences })
}
