//! A plan for a network, and what it gains.
//!
//! `cargo run --release --example optimize -- --model vgg --batch 4 --time-steps 10 --profile memory`

mod step;
mod tables;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarMap;
use clap::{Parser, ValueEnum};
use indicatif::ProgressBar;
use memopt::checkpoint::{Planned, SavedPlan};
use memopt::memory::CountingAllocator;
use memopt::models::{CifarDvsVgg, ResidualNet};
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::plan::Plan;
use memopt::search::{front, optimize, CheckpointBudget, Level, Options, Prefer, Profile, Summary};
use memopt::{report, Checkpointable};
use rand::{rngs::StdRng, SeedableRng};
use rand_distr::{Distribution, Poisson};
use std::path::{Path, PathBuf};
use std::time::Duration;
use step::{median, step, Step};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CPU: &Device = &Device::Cpu;

/// Finds a plan for a network, runs steps with and without it, and prints what was found.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// The network: the CIFAR10-DVS VGG, or a residual network of SEW blocks.
    #[arg(long, value_enum, default_value_t = Network::Vgg)]
    model: Network,
    /// Samples in a batch.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
    /// Time steps of a sample.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4096))]
    time_steps: u32,
    /// How much the search tries: safe, balanced, memory, exhaustive.
    #[arg(long)]
    profile: Option<Profile>,
    /// What matters more: speed, balanced, memory.
    #[arg(long)]
    prefer: Option<Prefer>,
    /// How far the search goes: 0 to 4.
    #[arg(long)]
    level: Option<Level>,
    /// Which share of the targets become segments: speed, balanced, memory.
    #[arg(long)]
    checkpoint_budget: Option<CheckpointBudget>,
    /// The fastest plan that fits in so many bytes: 200MB, 1.5GB, 150000000.
    #[arg(long, value_parser = bytes)]
    memory_budget: Option<usize>,
    /// Measure the costs of layers on this machine instead of taking the cost table's.
    #[arg(long)]
    measure_costs: bool,
    /// Threads whose workspaces are counted.
    #[arg(long)]
    threads: Option<usize>,
    /// Steps that are timed, with and without the plan in turn.
    #[arg(long, default_value_t = 3)]
    steps: usize,
    /// Seed of weights, data and dropout.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON line instead of tables.
    #[arg(long)]
    json: bool,
    /// Write the memory curves, the front of time and memory, what is resident at the peak (SVG), and a page with all of it (HTML) to this folder.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Write the plan to this file, with the fingerprint of the model.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Print the tables of the original's documentation instead: a tiny network and the VGG by profile, the VGG by preference (`--batch 8` for
    /// the original's size). Plans are timed in turn, `--steps` rounds; the ratio is the median of those of the rounds.
    #[arg(long)]
    table: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    Vgg,
    Residual,
}

/// Bytes, with a unit of powers of ten or none.
fn bytes(text: &str) -> std::result::Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        unit => return Err(format!("`{unit}` is no unit; give kB, MB, GB or none")),
    };
    match digits.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0. => Ok((number * factor) as usize),
        _ => Err(format!("`{text}` is no size; give one like 200MB")),
    }
}

fn run<M: Checkpointable + Clone>(flags: &Flags, net: M, x: &Tensor) -> Result<()> {
    let mut options = match flags.memory_budget {
        Some(bytes) => Options::memory_budget(bytes),
        None => Options::default(),
    };
    options = options.seed(flags.seed).measure_costs(flags.measure_costs);
    if let Some(threads) = flags.threads {
        options = options.threads(threads);
    }
    if let Some(prefer) = flags.prefer {
        options = options.with_prefer(prefer);
    }
    if let Some(profile) = flags.profile {
        options = options.with_profile(profile);
    }
    if let Some(level) = flags.level {
        options = options.level(level);
    }
    if let Some(budget) = flags.checkpoint_budget {
        options = options.checkpoint_budget(budget);
    }
    let spinner = (!flags.json).then(spinner);
    if let Some(spinner) = spinner.clone() {
        options = options.progress(move |what| spinner.set_message(what.to_owned()));
    }
    let plain = Planned::new(net.clone(), Plan::new(), Session::new(flags.seed))?;
    // Pages and caches, before anything is timed.
    step(&plain, x)?;
    let bare = net.clone();
    let net = optimize(net, x, options.clone())?;
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    if let Some(path) = &flags.save {
        SavedPlan::new(&bare, net.plan().clone()).save(path)?;
    }
    if let Some(folder) = &flags.svg {
        draw(folder, &bare, x, &options, net.summary())?;
    }
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for _ in 0..flags.steps {
        before.push(step(&plain, x)?);
        after.push(step(net.planned(), x)?);
    }
    let ms = |steps: &[Step]| median(steps.iter().map(|step| step.ms).collect());
    let peak = |steps: &[Step]| steps.iter().map(|step| step.peak).max();
    let summary = net.summary();
    let baseline_ms = ms(&before);
    let report = serde_json::json!({
        "model": match flags.model { Network::Vgg => "vgg", Network::Residual => "residual" },
        "batch": flags.batch,
        "time_steps": flags.time_steps,
        "predicted_peak": summary.predicted_peak,
        "measured_peak": peak(&after),
        "baseline_peak": peak(&before),
        "predicted_baseline_peak": summary.baseline_peak,
        "predicted_step_ms": summary.predicted_step_ms,
        "measured_step_ms": ms(&after),
        "baseline_step_ms": baseline_ms,
        "search_ms": summary.search_ms,
        "search_steps": summary.search_ms / baseline_ms,
        "plan": net.plan(),
    });
    if flags.json {
        println!("{report}");
        return Ok(());
    }
    println!("{summary}\n{net}");
    for line in &summary.log {
        println!("{line}");
    }
    println!("\n{report:#}");
    Ok(())
}

/// Quiet where there is no terminal.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_secs(1));
    spinner
}

/// Writes the plots and the page.
fn draw<M: Checkpointable>(
    folder: &Path,
    net: &M,
    x: &Tensor,
    options: &Options,
    summary: &Summary,
) -> Result<()> {
    let failed = |e: std::io::Error| candle_core::Error::Msg(format!("{}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let points = front(net, x, &options.clone(), 12)?;
    let files = [
        ("memory.svg", report::memory_curves(&summary.curve_before, &summary.curve_after)?),
        ("front.svg", report::front(&points)?),
        ("peak.svg", report::breakdown(&summary.resident)?),
        ("optimize.html", report::page("A plan for the network", summary, &points)?),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    Ok(())
}

/// Event counts: Poisson, mean 0.3.
fn events(seed: u64, dims: &[usize]) -> Result<Tensor> {
    let counts = Poisson::new(0.3f32).map_err(candle_core::Error::wrap)?;
    let mut random = StdRng::seed_from_u64(seed.wrapping_add(1));
    let events: Vec<f32> = counts.sample_iter(&mut random).take(dims.iter().product()).collect();
    Tensor::from_vec(events, dims, CPU)
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    if flags.table {
        return tables::print_all(&flags);
    }
    let (n, t) = (flags.batch as usize, flags.time_steps as usize);
    let variables = VarMap::new();
    let vb = seeded(&variables, flags.seed, DType::F32, CPU);
    match flags.model {
        Network::Vgg => run(&flags, CifarDvsVgg::new(48, vb)?, &events(flags.seed, &[n, t, 2, 48, 48])?),
        Network::Residual => run(
            &flags,
            ResidualNet::new(2, &[64, 128, 256], 2, 10, vb)?,
            &events(flags.seed, &[t, n, 2, 32, 32])?,
        ),
    }
}
