//! A plan for a network, and what it gains.
//!
//! `cargo run --release --example optimize -- --model vgg --batch 4 --time-steps 10 --profile memory`

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarMap;
use clap::{Parser, ValueEnum};
use indicatif::ProgressBar;
use memopt::checkpoint::{Planned, SavedPlan};
use memopt::memory::{CountingAllocator, Scope};
use memopt::models::{CifarDvsVgg, ResidualNet};
use memopt::module::Session;
use memopt::nn::{init::seeded, Lif, Linear, LinearConfig};
use memopt::plan::Plan;
use memopt::search::{front, optimize, CheckpointBudget, Level, Options, Prefer, Profile, Summary};
use memopt::{report, Checkpointable};
use rand::{rngs::StdRng, SeedableRng};
use rand_distr::{Distribution, Poisson};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    /// Print the tables of the original's documentation instead: a tiny network and the VGG by profile, the VGG by preference (`--batch 8` for the original's size).
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

/// What a step took.
struct Step {
    peak: usize,
    ms: f64,
}

/// A training step without an optimizer.
fn step<M: Checkpointable>(net: &Planned<M>, x: &Tensor) -> Result<Step> {
    let scope = Scope::enter("step").map_err(memopt::Error::from)?;
    let start = Instant::now();
    let loss = net.run(x, true)?.into_dense("logits")?.mean_all()?;
    let gradients = loss.backward()?;
    drop((gradients, loss));
    let ms = start.elapsed().as_secs_f64() * 1e3;
    Ok(Step { peak: scope.finish().peak_above_start(), ms })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn run<M: Checkpointable + Clone>(flags: &Flags, net: M, x: &Tensor) -> Result<()> {
    let mut options = match flags.memory_budget {
        Some(bytes) => Options::memory_budget(bytes),
        None => Options::default(),
    };
    options = options.seed(flags.seed);
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

/// The tiny network of the original's documentation.
#[derive(Clone, Checkpointable)]
#[spatial_split(blocks)]
struct BlockNet {
    blocks: Vec<FcBlock>,
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(fc, neuron)]
struct FcBlock {
    fc: Linear,
    neuron: Lif,
}

/// A row of a table: what was asked for, and what came of it.
fn row<M: Checkpointable + Clone>(
    net: &M,
    x: &Tensor,
    steps: usize,
    name: &str,
    options: Option<Options>,
    samples: usize,
) -> Result<Vec<String>> {
    let plain = Planned::new(net.clone(), Plan::new(), Session::new(0))?;
    step(&plain, x)?;
    let (planned, search_ms, structure) = match options {
        None => (plain, 0., "-".to_owned()),
        Some(options) => {
            let found = optimize(net.clone(), x, options)?;
            let s = found.summary();
            let structure = format!(
                "{} gc, {} tcgc, {} ccgc; {} + {} splits, {} restored",
                s.gc_segments,
                s.tcgc_segments,
                s.ccgc_segments,
                s.spatial_splits,
                s.temporal_splits,
                s.restored
            );
            (found.planned().clone(), s.search_ms, structure)
        }
    };
    step(&planned, x)?;
    let ran: Vec<Step> = (0..steps.max(1)).map(|_| step(&planned, x)).collect::<Result<_>>()?;
    let ms = median(ran.iter().map(|step| step.ms).collect());
    let peak = ran.iter().map(|step| step.peak).max().unwrap_or_default();
    Ok(vec![
        name.to_owned(),
        format!("{ms:.2}"),
        format!("{:.1}", samples as f64 * 1e3 / ms),
        format!("{:.2}", peak as f64 / 1e6),
        format!("{search_ms:.1}"),
        structure,
    ])
}

/// The original's numbers: step ms, peak MB, search ms.
type Original = (&'static str, &'static str);

fn print(title: &str, rows: Vec<(Vec<String>, Original)>) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "",
        "step ms",
        "samples/s",
        "peak MB",
        "search ms",
        "structure",
        "the original (RTX 4090): step ms, peak MB, search ms",
    ]);
    for (mut row, (_, original)) in rows {
        row.push(original.to_owned());
        table.add_row(row);
    }
    println!("{title}\n\n{table}\n");
}

fn tables(flags: &Flags) -> Result<()> {
    let vb = seeded(&VarMap::new(), flags.seed, DType::F32, CPU);
    let fc = Linear::new(16, 16, LinearConfig::default(), vb.pp("fc"))?;
    let tiny = BlockNet { blocks: vec![FcBlock { fc, neuron: Lif::default() }] };
    let x = Tensor::ones((2, 2, 16), DType::F32, CPU)?;
    let originals: [Original; 4] = [
        ("safe", "5.73, 17.26, 910.9"),
        ("balanced", "6.13, 17.26, 8661.2"),
        ("memory", "6.07, 17.26, 20027.8"),
        ("exhaustive", "-, 17.26, 32880.1"),
    ];
    let mut rows = vec![(row(&tiny, &x, 20, "baseline", None, 2)?, ("", "5.80, 17.26, 0"))];
    for original in originals {
        let options = Options::profile(original.0.parse()?);
        rows.push((row(&tiny, &x, 20, original.0, Some(options), 2)?, original));
    }
    print("MemOptBlockNet, depth 1, [2, 2, 16]", rows);

    let (n, t) = (flags.batch as usize, flags.time_steps as usize);
    let vgg = CifarDvsVgg::new(48, seeded(&VarMap::new(), flags.seed, DType::F32, CPU))?;
    let x = events(flags.seed, &[n, t, 2, 48, 48])?;
    let profiles: [Original; 4] = [
        ("safe", "36.60, 833.94, 2606"),
        ("balanced", "33.88, 787.94, 37038"),
        ("memory", "35.83, 671.56, 89789"),
        ("exhaustive", "27.66, 589.16, 450973"),
    ];
    let baseline = row(&vgg, &x, flags.steps, "baseline", None, n)?;
    let mut rows = vec![(baseline.clone(), ("", "27.57, 1022.23, 0"))];
    for original in profiles {
        let options = Options::profile(original.0.parse()?);
        rows.push((row(&vgg, &x, flags.steps, original.0, Some(options), n)?, original));
    }
    print(&format!("CIFAR10-DVS VGG by profile, batch {n}, T = {t}"), rows);

    let prefers: [Original; 3] =
        [("speed", "34.43, 922, 2727"), ("balanced", "34.35, 877, 34361"), ("memory", "43.36, 699, 92690")];
    let mut rows = vec![(baseline, ("", "27.57, 1022.23, 0"))];
    for original in prefers {
        let options = Options::prefer(original.0.parse()?);
        rows.push((row(&vgg, &x, flags.steps, original.0, Some(options), n)?, original));
    }
    print(&format!("CIFAR10-DVS VGG by preference, batch {n}, T = {t}"), rows);
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
        return tables(&flags);
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
