//! A training as a snapshot, for the trainer and for those who write their own loop.

use super::group::of_all_ranks;
use super::session;
use super::Settings;
use crate::checkpoint::{mark_changed, SavedPlan};
use crate::data::Position;
use crate::dist::{broadcast_parameters, Communicator};
use crate::module::Session;
use crate::snapshot::Snapshot;
use crate::train::parameters::by_name;
use crate::train::state::Loading;
use crate::train::{Accumulator, Optimizer};
use crate::{Error, Result};
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use serde::{Deserialize, Serialize};

/// The version of what a training keeps in a snapshot.
const VERSION: u32 = 1;

/// The section of the state.
const SECTION: &str = "training";

/// What moves in a training.
pub struct Training<'a, O: Optimizer> {
    /// All variables of the model: what is trained, and the running statistics.
    pub variables: &'a VarMap,
    /// Optimizer, loss scale, totals, and what is accumulated.
    pub accumulator: &'a mut Accumulator<O>,
    /// The session that the model runs in: random numbers, carried neuron states.
    pub session: &'a Session,
    /// The ranks that train together; [`Single`](crate::dist::Single) for one.
    pub communicator: &'a dyn Communicator,
}

/// Where a training stands, besides its tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    version: u32,
    /// The batch that is next.
    pub position: Position,
    /// Epochs that were evaluated.
    pub evaluated: u64,
    /// Bytes of the log, if there is one.
    pub log_bytes: Option<u64>,
    /// The plan of the model, if it has one.
    pub plan: Option<SavedPlan>,
    /// What must be the same where it is gone on from.
    pub settings: Settings,
}

impl Progress {
    /// At a position; nothing is said of evaluations, a log, a plan.
    pub fn new(position: Position, settings: Settings) -> Self {
        Progress { version: VERSION, position, evaluated: 0, log_bytes: None, plan: None, settings }
    }

    /// That of a snapshot.
    ///
    /// # Errors
    /// If the snapshot is not of a training, or of one that another version saved.
    pub fn of(snapshot: &Snapshot) -> Result<Self> {
        let progress: Progress = snapshot.get(SECTION)?;
        match progress.version {
            VERSION => Ok(progress),
            version => Err(Error::OtherConfiguration {
                differences: format!("version of what is saved of a training: {version} then, {VERSION} now"),
            }),
        }
    }
}

/// What becomes of micro-batches that are accumulated and not stepped on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pending {
    /// With some, nothing is saved: an error says so.
    #[default]
    Refused,
    /// Their gradients are saved too.
    Included,
}

/// A snapshot of a training, which goes on from it with the same bits: variables, optimizer, loss scale, totals, sessions, progress.
///
/// All ranks call it, at the same micro-batch, and get the same snapshot: one of them writes it. What differs between ranks is in it of
/// each: random numbers, carried states, accumulated gradients. Running statistics are those of rank 0, on all ranks
/// from then on.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::data::Loader;
/// use memopt_runtime::dist::Single;
/// use memopt_runtime::module::{Checkpointable, Session};
/// use memopt_runtime::nn::{init::seeded, BatchNorm, Dropout};
/// use memopt_runtime::train::{
///     load_training, save_training, Accumulator, AdamW, AdamWConfig, NamedParameters, Pending, Progress, Settings, Training,
/// };
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("training.memopt");
/// let loader = Loader::new(vec![Tensor::new(&[[1f32, -2.]], &Device::Cpu)?; 6]).batch_size(2); // [T, C]
/// let variables = VarMap::new();
/// let net = (
///     BatchNorm::new(2, Default::default(), seeded(&variables, 0, DType::F32, &Device::Cpu))?,
///     Dropout::new(0.5)?,
/// );
/// let session = Session::new(0);
/// let adamw = AdamW::new(&NamedParameters::of(&net)?, AdamWConfig::new(0.1))?;
/// let mut accumulator = Accumulator::new(adamw, Default::default())?;
/// let (settings, group) = (Settings::new().with("dropout", 0.5), Single::new());
///
/// let mut position = loader.beginning()?;
/// if path.exists() {
///     let mut training =
///         Training { variables: &variables, accumulator: &mut accumulator, session: &session, communicator: &group };
///     let snapshot = memopt_runtime::snapshot::Snapshot::load(&path)?;
///     position = load_training(&mut training, &snapshot, &settings)?.position;
/// }
/// while position.epoch() < 1 {
///     for batch in loader.resume(&position)? {
///         let batch = batch?;
///         let y = session.forward(true, |context| net.forward((&batch.data).into(), context))?.into_dense("net")?;
///         accumulator.backward(&y.sqr()?.mean_all()?, batch.indices.len())?;
///         position = batch.next;
///         let training =
///             Training { variables: &variables, accumulator: &mut accumulator, session: &session, communicator: &group };
///         save_training(&training, &Progress::new(position, settings.clone()), Pending::Refused)?.save(&path)?;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::MidAccumulation`] if micro-batches are accumulated, unless they are [included](Pending::Included); if the optimizer
/// cannot be saved, a parameter of it is not among the variables, or a rank fails.
pub fn save_training<O: Optimizer>(
    training: &Training<'_, O>,
    progress: &Progress,
    pending: Pending,
) -> Result<Snapshot> {
    let Training { variables, accumulator, session, communicator } = training;
    let variables = variables_of(variables, accumulator)?;
    let state = match pending {
        Pending::Refused => accumulator.state()?,
        Pending::Included => accumulator.state_with_window()?,
    };
    broadcast_parameters(*communicator, &variables)?;
    let (window, common): (Vec<_>, Vec<_>) =
        state.into_iter().partition(|(name, _)| name.starts_with("window."));
    let own = prefixed("session.", session::state_of(session)?).chain(prefixed(ACCUMULATOR, window));

    let mut snapshot = Snapshot::new();
    let named = variables.into_iter().map(|(name, variable)| (name, variable.as_detached_tensor()));
    snapshot.tensors.extend(prefixed(VARIABLE, named));
    snapshot.tensors.extend(prefixed(ACCUMULATOR, common));
    for (rank, own) in of_all_ranks(*communicator, own.collect())?.into_iter().enumerate() {
        snapshot.tensors.extend(prefixed(&of_rank(rank), own));
    }
    snapshot.set(SECTION, progress)?;
    Ok(snapshot)
}

/// Lets a training go on from a snapshot of one that was set up in the same way, and says where it stands. What was accumulated is
/// discarded, and counted as lost.
///
/// Each rank loads it.
///
/// # Errors
/// If it is no snapshot of a training; [`Error::OtherConfiguration`] if `settings` are others than those that were saved, or the session;
/// if a tensor is missing, is foreign or does not fit. Then nothing has changed.
pub fn load_training<O: Optimizer>(
    training: &mut Training<'_, O>,
    snapshot: &Snapshot,
    settings: &Settings,
) -> Result<Progress> {
    let progress = Progress::of(snapshot)?;
    progress.settings.check(settings)?;
    let Training { variables, accumulator, session, communicator } = training;
    let variables = variables_of(variables, accumulator)?;
    let with = |prefix: &str| -> Vec<(String, Tensor)> {
        let all = snapshot.tensors.iter();
        all.filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone())))
            .collect()
    };
    let of_rank = of_rank(communicator.rank());
    let session_state = session::read(session, &with(&format!("{of_rank}session.")))?;
    let mut loading = Loading::new("the model", &with(VARIABLE))?;
    let mut values = Vec::new();
    for (name, variable) in &variables {
        let value = loading.take_like(name, variable.dims(), variable.dtype())?;
        values.push(value.to_device(variable.device())?);
    }
    loading.finish()?;
    let state = [with(ACCUMULATOR), with(&format!("{of_rank}{ACCUMULATOR}"))].concat();
    accumulator.load_state(&state)?;
    for ((_, variable), value) in variables.iter().zip(&values) {
        variable.set(value)?;
        mark_changed(variable);
    }
    session_state.give_to(session);
    Ok(progress)
}

const VARIABLE: &str = "variable.";
const ACCUMULATOR: &str = "accumulator.";

fn of_rank(rank: usize) -> String {
    format!("rank.{rank}.")
}

fn prefixed(
    prefix: &str,
    tensors: impl IntoIterator<Item = (String, Tensor)>,
) -> impl Iterator<Item = (String, Tensor)> {
    let prefix = prefix.to_owned();
    tensors.into_iter().map(move |(name, tensor)| (format!("{prefix}{name}"), tensor))
}

/// The variables of a map in the order of their names.
///
/// # Errors
/// If a panic left the map locked, or the optimizer moves a parameter that is not among them.
pub(super) fn variables_of<O: Optimizer>(
    variables: &VarMap,
    accumulator: &Accumulator<O>,
) -> Result<Vec<(String, Var)>> {
    let wrong = |what: String| Error::Training { part: "variables".into(), what };
    let all = by_name(variables).map_err(|what| wrong(what.into()))?;
    let ids: std::collections::HashSet<_> = all.iter().map(|(_, variable)| variable.id()).collect();
    match accumulator.parameters().iter().find(|parameter| !ids.contains(&parameter.tensor().id())) {
        None => Ok(all),
        Some(parameter) => Err(wrong(format!(
            "the parameter `{}` of the optimizer is not in the variable map and would not be saved; make all of the model's \
             variables by a `VarBuilder` of one `VarMap`, and give that",
            parameter.name()
        ))),
    }
}
