//! One training step of the CIFAR10-DVS VGG under a plan: bytes held, peak, time, and a hash of all gradients.
//!
//! `cargo run --release --example vgg_step -- --batch 4 --time-steps 10 --plan gc-bit`

use candle_core::{DType, Device, ModuleT, Result, Tensor, Var};
use candle_nn::VarMap;
use clap::{Parser, ValueEnum};
use memopt::checkpoint::Planned;
use memopt::memory::{live, CountingAllocator, Scope};
use memopt::models::CifarDvsVgg;
use memopt::module::{Context, Part, Session, Signal, Step};
use memopt::nn::{init::seeded, Lif, Surrogate};
use memopt::plan::{Compressor, Keep, Plan, Segment};
use memopt::{Checkpointable, Parameters};
use rand::{rngs::StdRng, Rng, SeedableRng};
use rand_distr::{Distribution, Poisson};
use sha2::{Digest, Sha256};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CPU: &Device = &Device::Cpu;
const SIDE: usize = 48;
const BLOCKS: usize = 8;
const MOMENTUM: f64 = 0.9;

/// One training step of the CIFAR10-DVS VGG under a plan, on synthetic event counts (Poisson, mean 0.3).
///
/// Before: parameters, optimizer state, input; gradients, loss and caches dropped. Peak: the highest live bytes from there
/// to the end of the optimizer's step, minus before. Every byte is counted by the allocator.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Samples in a batch.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Time steps of a sample.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    time_steps: u32,
    /// plain, gc (inputs as they are), gc-bit, split, tcgc:K (K time chunks), ccgc:K (K channel chunks), or a JSON file {"features.0": "gc bit", ..}.
    #[arg(long, default_value = "gc-bit")]
    plan: String,
    /// What batch norm in time chunks takes the statistics of: `exact`, the whole window; `per-chunk`, each chunk by itself, which is another result (what SpikingJelly's time chunks compute). With tcgc:K only.
    #[arg(long, value_enum, default_value_t = Norms::Exact)]
    bn: Norms,
    /// Seed of weights, data and dropout.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Firing rate of every neuron layer (0 to 1), by thresholds that are calibrated once and then frozen.
    #[arg(long)]
    firing_rate: Option<f64>,
    /// Steps that are timed, after one that warms up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Print one JSON line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Norms {
    Exact,
    PerChunk,
}

/// The plan of this name.
fn plan(name: &str, norms: Norms) -> Result<Plan> {
    let every = |segment: Segment| {
        (0..BLOCKS).fold(Plan::new(), |plan, i| plan.with(format!("features.{i}"), segment.clone()))
    };
    Ok(match name {
        "plain" => Plan::new(),
        "gc" => every((Keep::Recompute, Compressor::Null).into()),
        // The first input is counts, not spikes: it is declared not to be compressed.
        "gc-bit" => every((Keep::Recompute, Compressor::Bit).into())
            .with("features.0", (Keep::Recompute, Compressor::Null)),
        "split" => (0..BLOCKS).fold(Plan::new(), |plan, i| {
            let input = if i == 0 { Compressor::Null } else { Compressor::Bit };
            plan.with(format!("features.{i}.proj_bn"), (Keep::Recompute, input))
                .with(format!("features.{i}.neuron"), (Keep::Recompute, Compressor::Null))
        }),
        chunks if chunks.starts_with("tcgc:") || chunks.starts_with("ccgc:") => {
            let keep: Keep = match (chunks.parse()?, norms) {
                (Keep::TimeChunks(chunks), Norms::PerChunk) => Keep::InexactTimeChunks(chunks),
                (keep, _) => keep,
            };
            every((keep, Compressor::Bit).into()).with("features.0", (keep, Compressor::Null))
        }
        file if file.ends_with(".json") => {
            let text = std::fs::read_to_string(file)
                .map_err(|e| candle_core::Error::Msg(format!("cannot read the plan {file}: {e}")))?;
            serde_json::from_str(&text).map_err(|e| candle_core::Error::Msg(format!("{file}: {e}")))?
        }
        other => candle_core::bail!(
            "`{other}` is no plan; the plans are: plain, gc, gc-bit, split, tcgc:K, ccgc:K, or a file that ends in .json"
        ),
    })
}

fn network(variables: &VarMap, seed: u64, thresholds: &[f64; BLOCKS]) -> Result<CifarDvsVgg> {
    Ok(CifarDvsVgg::with_thresholds(SIDE, thresholds, seeded(variables, seed, DType::F32, CPU))?)
}

/// Event counts `[N, T, 2, 48, 48]` and labels.
fn data(flags: &Flags) -> Result<(Tensor, Tensor)> {
    let mut random = StdRng::seed_from_u64(flags.seed.wrapping_add(1));
    let counts = Poisson::new(0.3f32).map_err(candle_core::Error::wrap)?;
    let (n, t) = (flags.batch as usize, flags.time_steps as usize);
    let Some(elements) =
        n.checked_mul(t).and_then(|nt| nt.checked_mul(2 * SIDE * SIDE)).filter(|n| n >> 40 == 0)
    else {
        candle_core::bail!("{n} samples of {t} time steps are more than any machine holds");
    };
    let events: Vec<f32> = counts.sample_iter(&mut random).take(elements).collect();
    let labels: Vec<u32> = (0..n).map(|_| random.random_range(0..10)).collect();
    Ok((Tensor::from_vec(events, (n, t, 2, SIDE, SIDE), CPU)?, Tensor::new(labels, CPU)?))
}

/// What flows through the network at its first weights.
struct Activity {
    thresholds: [f64; BLOCKS],
    firing_rates: Vec<f64>,
    /// Share of each convolution's inputs that are not zero.
    input_densities: Vec<f64>,
}

fn steps_of(part: &Part) -> Vec<Step> {
    part.composition().map(|composition| composition.steps().to_vec()).unwrap_or_default()
}

/// Walks through a network of its own, block by block; finds thresholds for the wanted rate, if one is wanted.
fn activity(flags: &Flags, x: &Tensor) -> Result<Activity> {
    let net = Parameters::detached(&network(&VarMap::new(), flags.seed, &[1.; BLOCKS])?);
    let mut context = Context::training(&Session::new(flags.seed));
    let mut found = Activity { thresholds: [1.; BLOCKS], firing_rates: vec![], input_densities: vec![] };
    let mut x = Signal::from(x.transpose(0, 1)?.contiguous()?);
    let Some(Step::Part { part: features, .. }) = net.composition().and_then(|c| c.steps().get(1).cloned())
    else {
        candle_core::bail!("the network has no features")
    };
    for (index, block) in steps_of(&features).iter().enumerate() {
        let Step::Part { part: block, .. } = block else { continue };
        let steps = steps_of(block);
        let Some(Step::Part { part: proj_bn, .. }) = steps.first() else { continue };
        for step in steps_of(proj_bn) {
            if step.name() == Some("conv") {
                let input = x.clone().into_dense("input")?;
                let nonzero = input.ne(0.)?.to_dtype(DType::F64)?.mean_all()?;
                found.input_densities.push(nonzero.to_scalar()?);
            }
            x = step.run(x, &mut context)?;
        }
        let z = x.into_dense("batch norm")?;
        let fire = |threshold: f64| -> Result<Tensor> {
            let neuron =
                Lif::new(1.333)?.decay_input(false).surrogate(Surrogate::atan()).v_threshold(threshold);
            Ok(neuron.window(&z, None)?.0)
        };
        let rate = |spikes: &Tensor| spikes.to_dtype(DType::F64)?.mean_all()?.to_scalar::<f64>();
        if let Some(wanted) = flags.firing_rate {
            let (mut low, mut high) = (-8., 16.);
            for _ in 0..30 {
                let middle = (low + high) / 2.;
                if rate(&fire(middle)?)? > wanted {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            found.thresholds[index] = (low + high) / 2.;
        }
        let spikes = fire(found.thresholds[index])?;
        found.firing_rates.push(rate(&spikes)?);
        x = spikes.into();
    }
    Ok(found)
}

/// SHA-256 over (name, dtype, shape, little-endian bytes) of all gradients, sorted by name.
fn hash(named: &[(String, Var)], gradients: &candle_core::backprop::GradStore) -> Result<String> {
    let mut hasher = Sha256::new();
    for (name, variable) in named {
        if let Some(gradient) = gradients.get(variable) {
            hasher.update(name.as_bytes());
            hasher.update(gradient.dtype().as_str().as_bytes());
            gradient.dims().iter().for_each(|dim| hasher.update((*dim as u64).to_le_bytes()));
            for value in gradient.flatten_all()?.to_vec1::<f32>()? {
                hasher.update(value.to_le_bytes());
            }
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    if flags.firing_rate.is_some_and(|rate| !(0. ..=1.).contains(&rate)) {
        candle_core::bail!("--firing-rate is a share: 0 to 1");
    }
    if flags.bn == Norms::PerChunk && !flags.plan.starts_with("tcgc:") {
        candle_core::bail!("--bn per-chunk is for time chunks: --plan tcgc:K, not {}", flags.plan);
    }
    let plan = plan(&flags.plan, flags.bn)?;
    let (x, labels) = data(&flags)?;
    let activity = activity(&flags, &x)?;
    let variables = VarMap::new();
    let net = network(&variables, flags.seed, &activity.thresholds)?;
    let inexact = plan.segments().any(|(_, segment)| matches!(segment.keep, Keep::InexactTimeChunks(_)));
    let net = Planned::new(net, plan, Session::new(flags.seed))?;
    let mut named: Vec<(String, Var)> = match variables.data().lock() {
        Ok(data) => data.iter().map(|(name, variable)| (name.clone(), variable.clone())).collect(),
        Err(_) => candle_core::bail!("the variables are poisoned"),
    };
    named.retain(|(name, _)| !name.contains("running"));
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let momentum: Vec<Var> =
        named.iter().map(|(_, v)| Var::zeros(v.shape(), v.dtype(), CPU)).collect::<Result<_>>()?;

    let (mut losses, mut times) = (Vec::new(), Vec::new());
    let (mut held, mut peak, mut grad_hash) = (0, 0, String::new());
    for step in 0..=flags.steps {
        let before = live().unwrap_or_default();
        let scope = Scope::enter("step").map_err(memopt::Error::from)?;
        let start = Instant::now();
        let loss = candle_nn::loss::cross_entropy(&net.forward_t(&x, true)?.mean(0)?, &labels)?;
        held = held.max(live().unwrap_or_default().saturating_sub(before));
        let gradients = loss.backward()?;
        let mut elapsed = start.elapsed();
        if step == 0 {
            grad_hash = hash(&named, &gradients)?;
        }
        let start = Instant::now();
        for ((_, variable), momentum) in named.iter().zip(&momentum) {
            if let Some(gradient) = gradients.get(variable) {
                momentum.set(&((momentum.as_tensor() * MOMENTUM)? + gradient)?)?;
                variable.set(&(variable.as_detached_tensor() - (momentum.as_tensor() * 1e-3)?)?.detach())?;
            }
        }
        losses.push(f64::from(loss.to_scalar::<f32>()?));
        drop((loss, gradients));
        elapsed += start.elapsed();
        let bytes = scope.finish().peak_above_start();
        if step > 0 {
            times.push(elapsed.as_secs_f64() * 1e3);
            peak = peak.max(bytes);
        }
    }
    times.sort_by(f64::total_cmp);
    let report = serde_json::json!({
        "plan": flags.plan,
        "bn": if inexact { "per-chunk" } else { "exact" },
        "batch": flags.batch,
        "time_steps": flags.time_steps,
        "held_bytes_after_forward": held,
        "peak_step_bytes": peak,
        "step_ms": times[times.len() / 2],
        "loss": losses,
        "grad_hash": grad_hash,
        "firing_rates": activity.firing_rates,
        "input_densities": activity.input_densities,
    });
    if flags.json {
        println!("{report}");
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    if let Some(report) = report.as_object() {
        for (name, value) in report {
            table.add_row([name.clone(), value.to_string()]);
        }
    }
    println!("{table}");
    Ok(())
}
