//! The training loop.
//!
//! ```text
//! mod        the trainer: what it is made of, resuming
//!   fit        epochs: micro-batches, steps, evaluations, snapshots
//!   pace       samples by time and peaks by step
//!   saved      a training as a snapshot, for those who write their own loop too
//!     session    the session's part of it
//!     group      what ranks do together besides their steps
//!   log        lines of JSON
//! model      what can be trained
//! config     numbers; settings: what must be the same in a resumption
//! report     what is said of steps, evaluations, the whole
//! ```

mod config;
mod fit;
mod group;
mod log;
mod model;
mod pace;
mod report;
mod saved;
mod session;
mod settings;

pub use config::{NormMode, TrainerConfig};
pub use model::{Bare, Trainable};
pub use report::{Evaluation, Metrics, Resumed, StepReport, TrainingSummary};
pub use saved::{load_training, save_training, Pending, Progress, Training};
pub use settings::Settings;

use crate::data::Position;
use crate::dist::{Communicator, Single};
use crate::snapshot::{Latest, Skipped, Snapshot, SnapshotError, Store};
use crate::train::{Accumulator, Optimizer};
use crate::{Error, Result};
use candle_nn::VarMap;
use log::Log;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is called with each report of a kind.
type Hook<T> = Box<dyn FnMut(&T) + Send>;

/// Trains a model: epochs of micro-batches, an evaluation at the end of each, snapshots, a log.
///
/// ```
/// use candle_core::{DType, Device, ModuleT, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::checkpoint::Planned;
/// use memopt_runtime::data::{from_fn, Loader};
/// use memopt_runtime::module::Session;
/// use memopt_runtime::nn::{cross_entropy_of_mean, init::seeded, Dropout, Lif, Linear};
/// use memopt_runtime::train::{AdamW, AdamWConfig, Metrics, NamedParameters, Trainer, TrainerConfig};
///
/// # let folder = tempfile::tempdir()?;
/// # let snapshots = folder.path().join("snapshots");
/// # let log = folder.path().join("log.jsonl");
/// let samples = from_fn(20, |i| Ok((Tensor::full((i % 2) as f32, (4, 6), &Device::Cpu)?, i as u32 % 2))); // [T, C]
/// let loader = Loader::new(samples).batch_size(3).shuffle(true);
///
/// let variables = VarMap::new();
/// let vb = seeded(&variables, 0, DType::F32, &Device::Cpu);
/// let net = (
///     Linear::new(6, 16, Default::default(), vb.pp("a"))?,
///     Lif::default(),
///     Dropout::new(0.2)?,
///     Linear::new(16, 2, Default::default(), vb.pp("b"))?,
/// );
/// let net = Planned::new(net, "0: gc".parse()?, Session::new(0))?;
/// let adamw = AdamW::new(&NamedParameters::of(&*net)?, AdamWConfig::new(1e-2))?;
/// let config = TrainerConfig {
///     epochs: 3,
///     accumulate: 2, // steps of 2 x 3 samples
///     folder: Some(snapshots.clone()),
///     save_every: Some(2),
///     log: Some(log.clone()),
///     ..Default::default()
/// };
/// let mut trainer = Trainer::new(net, &variables, adamw, config)?;
/// if let Some(resumed) = trainer.resume(&snapshots)? {
///     println!("{resumed}"); // the second time
/// }
/// trainer.on_step(|report| println!("{}, {:.0} samples/s", report.step, report.samples_per_second));
/// let summary = trainer.fit(
///     &loader,
///     |net, (x, labels)| cross_entropy_of_mean(&net.forward_t(x, true)?, labels), // a mean, not scaled
///     |net| Ok(Metrics::from([("rate".to_owned(), net.session().calls() as f64)])),
/// )?;
/// assert_eq!((summary.totals.steps, summary.evaluations.len()), (3 * 4, 3)); // 7 micro-batches an epoch
/// assert_eq!(std::fs::read_to_string(&log)?.lines().count(), 3 * 4 + 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The loss that the closure gives is the mean over its batch. Steps are those of an [`Accumulator`]; the last one of an epoch
/// is of what is left.
///
/// # Snapshots
///
/// Before the first step, behind each [`save_every`](TrainerConfig::save_every)-th, and at the end of each epoch behind its evaluation,
/// whatever the next steps depend on is saved: variables with running statistics, optimizer, loss scale, totals, the session's
/// count of calls (the random numbers of dropout) and carried states, the position in the data, the plan. A training that is
/// killed at any moment and [resumed](Self::resume) goes on with the same bits, of losses and of weights.
///
/// # The log
///
/// A JSON object a line: of each step (`"kind":"step"`, and the fields of [`StepReport`] and of [`Step`](crate::train::Step); a
/// number that is not finite is `null`), and of each evaluation (`"kind":"evaluation"`, and the fields of [`Evaluation`]). A new training
/// goes on behind what is in the file. One that is resumed cuts off what the killed one wrote behind the snapshot, and writes
/// it again: no line is missing, none is there twice.
///
/// # Ranks
///
/// [`of_ranks`](Self::of_ranks) trains with others: each with its share of the loader's samples (it is sharded here) and its own
/// model, whose variables become those of rank 0 at the beginning, and again (running statistics are of a rank's own
/// batches) before evaluations and snapshots. All ranks evaluate; rank 0 writes the snapshots and the log, and all read. The
/// ranks must have the same plan and configuration. A rank that fails tells the others, whose `fit` ends with its error.
///
/// # After an error
///
/// `fit` can be called again, but for groups of ranks: it goes on behind the last micro-batch that was gone back from.
pub struct Trainer<M, O: Optimizer> {
    model: M,
    variables: VarMap,
    accumulator: Accumulator<O>,
    config: TrainerConfig,
    communicator: Arc<dyn Communicator>,
    /// What must be the same in a resumption. Of the beginning: the learning rate moves.
    settings: Settings,
    /// Behind the last micro-batch; `None`: nothing was trained.
    position: Option<Position>,
    /// Epochs that were evaluated.
    evaluated: u64,
    /// Where the log was left by the snapshot that is gone on from.
    log_bytes: Option<u64>,
    log: Option<Log>,
    /// The folder that was resumed from, and the number of the snapshot.
    resumed: Option<(PathBuf, u64)>,
    on_step: Option<Hook<StepReport>>,
    on_evaluation: Option<Hook<Evaluation>>,
}

impl<M: Trainable, O: Optimizer> Trainer<M, O> {
    /// A trainer of a model, whose variables are all in `variables`, by an optimizer of its parameters.
    ///
    /// # Errors
    /// If a number of the configuration makes no sense, or a parameter is not among the variables.
    pub fn new(model: M, variables: &VarMap, optimizer: O, config: TrainerConfig) -> Result<Self> {
        let settings = settings_of(&config, &optimizer, 1);
        let accumulator = Accumulator::new(optimizer, config.of_accumulator(model.session()))?;
        Self::with(model, variables, accumulator, config, Arc::new(Single::new()), settings)
    }

    /// The same for a rank of a group; see the [ranks](Self#ranks).
    ///
    /// # Errors
    /// Those of [`new`](Self::new); the other ranks are told.
    pub fn of_ranks(
        model: M,
        variables: &VarMap,
        optimizer: O,
        config: TrainerConfig,
        communicator: Arc<dyn Communicator>,
    ) -> Result<Self> {
        let settings = settings_of(&config, &optimizer, communicator.size());
        group::or_tell(&*communicator.clone(), || {
            let config_of_accumulator = config.of_accumulator(model.session());
            let accumulator = Accumulator::of_ranks(optimizer, config_of_accumulator, communicator.clone())?;
            Self::with(model, variables, accumulator, config, communicator, settings)
        })
    }

    fn with(
        model: M,
        variables: &VarMap,
        accumulator: Accumulator<O>,
        config: TrainerConfig,
        communicator: Arc<dyn Communicator>,
        settings: Settings,
    ) -> Result<Self> {
        config.check()?;
        saved::variables_of(variables, &accumulator)?;
        Ok(Trainer {
            model,
            variables: variables.clone(),
            accumulator,
            config,
            communicator,
            settings,
            position: None,
            evaluated: 0,
            log_bytes: None,
            log: None,
            resumed: None,
            on_step: None,
            on_evaluation: None,
        })
    }

    /// Calls `hook` behind each step, skipped ones included.
    pub fn on_step(&mut self, hook: impl FnMut(&StepReport) + Send + 'static) {
        self.on_step = Some(Box::new(hook));
    }

    /// Calls `hook` behind each evaluation.
    pub fn on_evaluation(&mut self, hook: impl FnMut(&Evaluation) + Send + 'static) {
        self.on_evaluation = Some(Box::new(hook));
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Optimizer, loss scale, totals, and what is accumulated.
    pub fn accumulator(&self) -> &Accumulator<O> {
        &self.accumulator
    }

    /// The model; what is accumulated is lost, and counted so.
    pub fn into_model(self) -> M {
        self.model
    }

    /// Lets the next [`fit`](Self::fit) go on from a snapshot: a file, or the latest good one in a folder. `None`: the folder has none, and
    /// training begins at the beginning.
    ///
    /// Later snapshots that are damaged are passed over, and named in the answer; `fit` deletes them when it goes on in that
    /// folder. All ranks call it; rank 0 chooses the file, and all read it.
    ///
    /// # Errors
    /// If there are snapshots in the folder, but no good one, or a later one is of another version of memopt; if it is of another
    /// model or was set up in another way. Then nothing has changed.
    pub fn resume(&mut self, from: impl AsRef<Path>) -> Result<Option<Resumed>> {
        let communicator = self.communicator.clone();
        group::or_tell(&*communicator, || self.resume_from(from.as_ref()))
    }

    fn resume_from(&mut self, from: &Path) -> Result<Option<Resumed>> {
        let first = self.communicator.rank() == 0;
        let chosen = if first { choose(from)? } else { Chosen::default() };
        let mut path = chosen.path.to_string_lossy().into_owned().into_bytes();
        self.communicator.broadcast(0, &mut path)?;
        if path.is_empty() {
            return Ok(None);
        }
        let snapshot = match chosen.snapshot {
            Some(snapshot) => snapshot,
            None => Snapshot::load(Path::new(&*String::from_utf8_lossy(&path)))?,
        };
        let then = Progress::of(&snapshot)?;
        self.model.check_plan(then.plan.as_ref())?;
        let mut training = Training {
            variables: &self.variables,
            accumulator: &mut self.accumulator,
            session: self.model.session(),
            communicator: &*self.communicator,
        };
        let progress = load_training(&mut training, &snapshot, &self.settings)?;
        self.position = Some(progress.position);
        self.evaluated = progress.evaluated;
        self.log_bytes = progress.log_bytes;
        self.log = None;
        self.resumed = chosen.step.map(|step| (from.to_owned(), step));
        Ok(Some(Resumed {
            path: PathBuf::from(&*String::from_utf8_lossy(&path)),
            totals: self.accumulator.totals(),
            epoch: progress.position.epoch(),
            skipped: chosen.skipped,
        }))
    }

    /// Writes a snapshot of where training stands to a file. All ranks call it; rank 0 writes.
    ///
    /// # Errors
    /// [`Error::MidAccumulation`] if micro-batches are accumulated, unless they are [included](Pending::Included); if nothing
    /// was trained yet; if it cannot be written.
    pub fn save(&mut self, path: impl AsRef<Path>, pending: Pending) -> Result<()> {
        let communicator = self.communicator.clone();
        group::or_tell(&*communicator, || {
            let snapshot = self.snapshot(pending)?;
            match communicator.rank() {
                0 => snapshot.save(path),
                _ => Ok(()),
            }
        })
    }

    fn snapshot(&mut self, pending: Pending) -> Result<Snapshot> {
        let Some(position) = self.position else {
            return Err(wrong("there is nothing to save before `fit` or `resume` was called".into()));
        };
        let log_bytes = self.log.as_ref().map(Log::sync).transpose()?;
        let mut progress = Progress::new(position, self.settings.clone());
        progress.evaluated = self.evaluated;
        progress.log_bytes = log_bytes;
        progress.plan = self.model.saved_plan();
        let training = Training {
            variables: &self.variables,
            accumulator: &mut self.accumulator,
            session: self.model.session(),
            communicator: &*self.communicator,
        };
        save_training(&training, &progress, pending)
    }
}

/// What rank 0 chose to go on from.
#[derive(Default)]
struct Chosen {
    /// Empty: there is nothing.
    path: PathBuf,
    snapshot: Option<Snapshot>,
    /// Its number in a folder.
    step: Option<u64>,
    skipped: Vec<Skipped>,
}

fn choose(from: &Path) -> Result<Chosen> {
    if from.is_file() {
        let snapshot = Some(Snapshot::load(from)?);
        return Ok(Chosen { path: from.to_owned(), snapshot, ..Default::default() });
    }
    if !from.exists() {
        return Ok(Chosen::default());
    }
    let store = Store::open(from, 1)?;
    let Latest { found, mut skipped } = store.latest()?;
    let not_damaged =
        |skipped: &Skipped| !matches!(skipped.why.root(), Error::Snapshot(SnapshotError::Damaged { .. }));
    if let Some(place) = skipped.iter().position(not_damaged) {
        return Err(skipped.swap_remove(place).why);
    }
    match (found, skipped.first()) {
        (Some((step, snapshot)), _) => {
            Ok(Chosen { path: store.path(step), snapshot: Some(snapshot), step: Some(step), skipped })
        }
        (None, None) => Ok(Chosen::default()),
        (None, Some(latest)) => Err(wrong(format!(
            "none of the {} snapshots in `{}` is whole (the latest: {}); bring one back, or begin anew in another folder",
            skipped.len(),
            from.display(),
            latest.why
        ))),
    }
}

/// What must be the same where a training goes on.
fn settings_of<O: Optimizer>(config: &TrainerConfig, optimizer: &O, ranks: usize) -> Settings {
    let of_optimizer = optimizer.configuration().into_iter();
    of_optimizer.fold(config.must_match().with("ranks", ranks), |settings, (name, value)| {
        settings.with(format!("optimizer's {name}"), value)
    })
}

fn wrong(what: String) -> Error {
    Error::Training { part: "trainer".into(), what }
}
