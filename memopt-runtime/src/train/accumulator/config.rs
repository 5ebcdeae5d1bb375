//! What an accumulator does.

use crate::module::Session;
use crate::train::{Clip, ScalerConfig, Schedule};
use crate::{Error, Result};

/// What an [`Accumulator`](super::Accumulator) does with its micro-batches.
#[derive(Debug, Clone)]
pub struct AccumulatorConfig {
    /// Micro-batches of a step, K; 1: a step each.
    pub steps: usize,
    /// How gradients are clipped, behind the unscaling.
    pub clip: Clip,
    /// The dynamic loss scale, for f16; `None`: losses are not scaled.
    pub scaling: Option<ScalerConfig>,
    /// The learning rate by the number of steps made; `None`: the optimizer's own.
    pub schedule: Option<Schedule>,
    /// How batch norms see the micro-batches.
    pub norms: Norms,
}

impl Default for AccumulatorConfig {
    /// A step for each micro-batch; no clipping, no scaling, the optimizer's learning rate, norms by micro-batch.
    fn default() -> Self {
        AccumulatorConfig {
            steps: 1,
            clip: Clip::Never,
            scaling: None,
            schedule: None,
            norms: Norms::PerMicro,
        }
    }
}

impl AccumulatorConfig {
    /// # Errors
    /// If a number makes no sense.
    pub(super) fn check(&self) -> Result<()> {
        self.clip.check()?;
        if matches!(&self.norms, Norms::Synchronized(session) if !session.has_norm_group()) {
            let what = "norms are to be synchronized, but those of this session are not coupled; give the session that the model \
                        runs in, with `Session::with_norm_group`";
            return Err(Error::Training { part: "accumulator".into(), what: what.into() });
        }
        match self.steps {
            0 => {
                let what = "a step of 0 micro-batches; at least 1 expected".into();
                Err(Error::Training { part: "accumulator".into(), what })
            }
            _ => Ok(()),
        }
    }
}

/// How batch norms see the micro-batches of a step.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Norms {
    /// Each micro-batch has its own statistics, and the running ones move with each: what training by small batches does.
    /// The gradient is then not that of the large batch.
    #[default]
    PerMicro,
    /// The norms of this session (the model's: `net.session()`) normalize by their running statistics, which stay as they
    /// are, while all else trains; for as long as the accumulator lives ([`Session::freeze_norms`]). The gradient is that
    /// of the large batch.
    Frozen(Session),
    /// The norms of this session take their statistics over the micro-batches of all ranks, each round of micro-batches as one
    /// batch ([`synchronized_norms`](crate::train::synchronized_norms)). With one micro-batch a step on each rank the gradient is
    /// that of the large batch. The losses are weighted by their counts before they are gone back from, since the norms
    /// add up the ranks' gradients on the way.
    Synchronized(Session),
}
