//! What a trainer does.

use super::Settings;
use crate::module::Session;
use crate::train::{AccumulatorConfig, Clip, Norms, ScalerConfig, Schedule};
use crate::{Error, Result};
use std::path::PathBuf;

/// What a [`Trainer`](super::Trainer) does.
#[derive(Debug, Clone)]
pub struct TrainerConfig {
    /// Passes over the samples, those before a resumption included.
    pub epochs: u64,
    /// Micro-batches of a step on each rank, K: the loader's batches are micro-batches.
    pub accumulate: usize,
    /// How gradients are clipped.
    pub clip: Clip,
    /// The learning rate by the number of steps made; `None`: the optimizer's own.
    pub schedule: Option<Schedule>,
    /// The dynamic loss scale, for f16; `None`: losses are not scaled.
    pub scaling: Option<ScalerConfig>,
    /// How batch norms see the micro-batches.
    pub norms: NormMode,
    /// The folder of the snapshots ([`Store`](crate::snapshot::Store)); `None`: none are saved.
    pub folder: Option<PathBuf>,
    /// A snapshot behind each so many steps (skipped ones count); `None`: only at the beginning and at the end of each epoch.
    pub save_every: Option<u64>,
    /// How many snapshots are kept.
    pub keep: usize,
    /// The log ([`Trainer`](super::Trainer) says what is in it); `None`: none is written.
    pub log: Option<PathBuf>,
    /// What else of the program must be as it was where a snapshot is gone on from: the time steps of an encoder, say.
    pub settings: Settings,
}

impl Default for TrainerConfig {
    /// One epoch, a step for each batch; no clipping, schedule or scaling; norms by micro-batch; no snapshots (three are kept
    /// where there is a folder), no log.
    fn default() -> Self {
        TrainerConfig {
            epochs: 1,
            accumulate: 1,
            clip: Clip::Never,
            schedule: None,
            scaling: None,
            norms: NormMode::PerMicro,
            folder: None,
            save_every: None,
            keep: 3,
            log: None,
            settings: Settings::new(),
        }
    }
}

/// How batch norms see the micro-batches of a step: [`Norms`], of the session of the trainer's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum NormMode {
    /// [`Norms::PerMicro`].
    #[default]
    PerMicro,
    /// [`Norms::Frozen`].
    Frozen,
    /// [`Norms::Synchronized`]; the session needs a [norm group](Session::with_norm_group).
    Synchronized,
}

impl TrainerConfig {
    /// # Errors
    /// If a number makes no sense that nobody else looks at.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Training { part: "trainer".into(), what: what.to_owned() });
        match (self.epochs, self.save_every, self.keep) {
            (0, ..) => wrong("0 epochs train nothing; give 1 or more"),
            (_, Some(0), _) => wrong("a snapshot behind each 0 steps; give 1 or more, or `None`"),
            (.., 0) => wrong("0 snapshots are to be kept; give 1 or more, or no folder"),
            _ => Ok(()),
        }
    }

    /// That of the accumulator.
    pub(super) fn of_accumulator(&self, session: &Session) -> AccumulatorConfig {
        AccumulatorConfig {
            steps: self.accumulate,
            clip: self.clip,
            scaling: self.scaling,
            schedule: self.schedule.clone(),
            norms: match self.norms {
                NormMode::PerMicro => Norms::PerMicro,
                NormMode::Frozen => Norms::Frozen(session.clone()),
                NormMode::Synchronized => Norms::Synchronized(session.clone()),
            },
        }
    }

    /// What of it must be the same where a snapshot is gone on from. (Not the epochs: one may go on for longer.)
    pub(super) fn must_match(&self) -> Settings {
        let TrainerConfig { accumulate, clip, schedule, scaling, norms, .. } = self;
        let schedule = schedule.as_ref().map_or("none".to_owned(), |schedule| format!("{schedule:?}"));
        let scaling = scaling.map_or("none".to_owned(), |scaling| format!("{scaling:?}"));
        self.settings
            .clone()
            .with("accumulate", accumulate)
            .with("clip", format!("{clip:?}"))
            .with("schedule", schedule)
            .with("scaling", scaling)
            .with("norms", format!("{norms:?}"))
    }
}
