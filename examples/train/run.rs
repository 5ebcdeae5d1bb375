//! One training, of one rank or of several in threads.

use super::flags::{Flags, Kind, Type};
use super::network::{Data, Net};
use candle_core::{Device, Tensor};
use candle_nn::VarMap;
use indicatif::{ProgressBar, ProgressStyle};
use memopt::checkpoint::Planned;
use memopt::dist::{agreement, Communicator, Threads};
use memopt::module::Session;
use memopt::nn::{cross_entropy_of_mean, init::seeded};
use memopt::plan::Plan;
use memopt::search::{optimize, Options};
use memopt::train::{
    AdamW, AdamWConfig, Clip, NamedParameters, Optimizer, ScalerConfig, Settings, Sgd, SgdConfig, StepReport,
    Trainer, TrainerConfig, TrainingSummary,
};
use memopt::{Error, Result};
use rayon::ThreadPoolBuilder;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::{Arc, Mutex};

/// What is shown on the way.
#[derive(Clone, Copy, PartialEq)]
pub enum Shown {
    Nothing,
    All,
}

/// What came of a training.
pub struct Outcome {
    pub summary: TrainingSummary,
    /// Samples and loss of each step.
    pub losses: Vec<(u64, f64)>,
    /// SHA-256 of all variables, in the order of their names.
    pub weights: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrainingSummary { totals, evaluations, samples_per_second, peak_bytes, saved, .. } =
            &self.summary;
        if let Some(accuracy) = evaluations.last().and_then(|last| last.metrics.get("accuracy")) {
            writeln!(f, "accuracy, held out: {:.2} %", 100. * accuracy)?;
        }
        writeln!(f, "steps: {}, skipped: {}", totals.steps, totals.skipped_steps)?;
        writeln!(f, "samples/s: {samples_per_second:.0}")?;
        if let Some(peak) = peak_bytes {
            writeln!(f, "peak of a step: {:.3} MB live in the process", *peak as f64 / 1e6)?;
        }
        if let Some(saved) = saved {
            writeln!(f, "last snapshot: {}", saved.display())?;
        }
        write!(f, "sha256 of the final weights: {}", self.weights)
    }
}

/// Trains as one rank of a group.
pub fn train(flags: &Flags, communicator: Arc<dyn Communicator>, shown: Shown) -> Result<Outcome> {
    let ranks = communicator.size();
    let shown = if communicator.rank() == 0 { shown } else { Shown::Nothing };
    let data = Data::new(flags)?;
    let variables = VarMap::new();
    let net = Net::new(seeded(&variables, flags.seed, flags.dtype(), &Device::Cpu), flags.dropout)?;
    let net = planned(net, flags, &data, &communicator)?;
    let optimizer = optimizer(flags, &NamedParameters::of(&*net)?)?;
    let mut trainer = Trainer::of_ranks(net, &variables, optimizer, config(flags), communicator)?;
    if shown == Shown::All {
        let (images, Flags { accumulate, micro_batch, .. }) = (data.training.order().samples, flags);
        println!(
            "{images} images, steps of {accumulate} x {micro_batch} on each of {ranks} ranks; the plan:"
        );
        print!("{}", trainer.model().tree());
    }
    if let Some(folder) = &flags.resume {
        match trainer.resume(folder)? {
            Some(resumed) if shown == Shown::All => println!("{resumed}"),
            None if shown == Shown::All => println!("nothing to resume in {}", folder.display()),
            _ => {}
        }
    }
    let losses = Arc::new(Mutex::new(Vec::new()));
    let (seen, bar) = (losses.clone(), bar(shown)?);
    let shown_by_bar = bar.clone();
    trainer.on_step(move |report| {
        show(&shown_by_bar, report);
        if let Ok(mut seen) = seen.lock() {
            seen.push((report.step.samples, report.step.loss));
        }
    });
    let summary = trainer.fit(
        &data.training,
        |net, (x, labels)| {
            let logits = net.run(x, true)?.into_dense("logits")?.to_dtype(candle_core::DType::F32)?;
            cross_entropy_of_mean(&logits, labels)
        },
        |net| data.accuracy(net),
    )?;
    bar.finish_and_clear();
    let losses = losses.lock().map(|mut losses| std::mem::take(&mut *losses)).unwrap_or_default();
    Ok(Outcome { summary, losses, weights: hash(&variables)? })
}

/// Trains with ranks in threads, each with a pool of so many threads, or its share of the cores; what rank 0 gives.
pub fn in_threads(flags: &Flags, ranks: u16, pool: Option<usize>, shown: Shown) -> Result<Outcome> {
    let ranks = usize::from(ranks);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = pool.unwrap_or((cores / ranks).max(1));
    let wrong = |what: String| Error::Training { part: "threads".into(), what };
    let outcomes: Vec<Result<Outcome>> = std::thread::scope(|scope| {
        let spawn = |rank| {
            scope.spawn(move || {
                let pool = ThreadPoolBuilder::new().num_threads(threads).build();
                let pool = pool.map_err(|e| wrong(e.to_string()))?;
                pool.install(|| train(flags, Arc::new(rank), shown))
            })
        };
        let threads: Vec<_> = Threads::group(ranks).into_iter().map(spawn).collect();
        let end = |thread: std::thread::ScopedJoinHandle<'_, Result<Outcome>>| {
            thread.join().unwrap_or_else(|_| Err(wrong("a rank panicked".into())))
        };
        threads.into_iter().map(end).collect()
    });
    let mut outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
    let first = outcomes.next().ok_or_else(|| wrong("there are no ranks".into()))?;
    match outcomes.find(|other| other.weights != first.weights) {
        None => Ok(first),
        Some(other) => Err(wrong(format!("ranks end with {} and {}", first.weights, other.weights))),
    }
}

/// The network with the plan that is asked for, the same on all ranks; each rank has masks of its own.
fn planned(
    net: Net,
    flags: &Flags,
    data: &Data,
    communicator: &Arc<dyn Communicator>,
) -> Result<Planned<Net>> {
    let seed = flags.seed.wrapping_add(communicator.rank() as u64);
    let Some(prefer) = flags.prefer else { return Planned::new(net, Plan::new(), Session::new(seed)) };
    let options = Options::prefer(prefer).seed(seed).agreement(Arc::new(agreement(communicator.clone())));
    Ok(optimize(net, &data.sample()?, options)?.planned().clone())
}

fn optimizer(flags: &Flags, parameters: &NamedParameters) -> Result<Box<dyn Optimizer>> {
    Ok(match flags.optimizer {
        Kind::Sgd => {
            let config = SgdConfig { momentum: 0.9, ..SgdConfig::new(flags.rate()) };
            Box::new(Sgd::new(parameters, config)?)
        }
        Kind::Adamw => Box::new(AdamW::new(parameters, AdamWConfig::new(flags.rate()))?),
    })
}

fn config(flags: &Flags) -> TrainerConfig {
    TrainerConfig {
        epochs: flags.epochs,
        accumulate: flags.accumulate.into(),
        clip: flags.clip.map_or(Clip::Never, Clip::GlobalNorm),
        scaling: (flags.dtype == Type::F16).then(ScalerConfig::default),
        folder: flags.resume.clone().or(flags.snapshots.clone()),
        save_every: flags.save_every,
        log: flags.log.clone(),
        // What the trainer cannot see.
        settings: Settings::new().with("time steps", flags.time_steps).with("dropout", flags.dropout),
        ..Default::default()
    }
}

/// Draws to standard error, if that is a terminal.
fn bar(shown: Shown) -> Result<ProgressBar> {
    if shown == Shown::Nothing {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta}  {msg}");
    let style = style.map_err(candle_core::Error::wrap)?;
    Ok(ProgressBar::new(0).with_style(style))
}

fn show(bar: &ProgressBar, report: &StepReport) {
    let StepReport { epoch, micro_batch, micro_batches_of_epoch, step, samples_per_second, peak_bytes } =
        report;
    bar.set_length(*micro_batches_of_epoch);
    bar.set_position(*micro_batch);
    let peak = peak_bytes.map_or(String::new(), |peak| format!(", peak {:.2} MB", peak as f64 / 1e6));
    bar.set_message(format!("epoch {epoch}, loss {:.4}, {samples_per_second:.0} samples/s{peak}", step.loss));
}

/// SHA-256 of all variables, in the order of their names.
fn hash(variables: &VarMap) -> Result<String> {
    let Ok(data) = variables.data().lock() else {
        let what = "they were left locked by a panic".into();
        return Err(Error::Training { part: "variables".into(), what });
    };
    let mut all: Vec<(&String, &Tensor)> =
        data.iter().map(|(name, variable)| (name, variable.as_tensor())).collect();
    all.sort_by_key(|(name, _)| *name);
    let mut hash = Sha256::new();
    for (name, tensor) in all {
        let mut bytes = Vec::new();
        tensor.write_bytes(&mut bytes)?;
        hash.update(name);
        hash.update(&bytes);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
