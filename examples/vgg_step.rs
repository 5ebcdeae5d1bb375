//! One training step of the CIFAR10-DVS VGG under a plan: bytes held, peak, time, and a hash of all gradients.
//!
//! `cargo run --release --example vgg_step -- --batch 4 --time-steps 10 --plan gc-bit`

#[path = "common/vgg.rs"]
mod vgg;

use candle_core::{DType, Result, Tensor};
use candle_nn::VarMap;
use clap::{Parser, ValueEnum};
use memopt::checkpoint::Planned;
use memopt::memory::CountingAllocator;
use memopt::module::{Context, Part, Session, Signal, Step};
use memopt::nn::{Lif, Surrogate};
use memopt::plan::Keep;
use memopt::{Checkpointable, Parameters};
use vgg::{data, network, plan, train, BLOCKS};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

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

fn main() -> Result<()> {
    let flags = Flags::parse();
    if flags.firing_rate.is_some_and(|rate| !(0. ..=1.).contains(&rate)) {
        candle_core::bail!("--firing-rate is a share: 0 to 1");
    }
    if flags.bn == Norms::PerChunk && !flags.plan.starts_with("tcgc:") {
        candle_core::bail!("--bn per-chunk is for time chunks: --plan tcgc:K, not {}", flags.plan);
    }
    let plan = plan(&flags.plan, flags.bn == Norms::PerChunk)?;
    let (x, labels) = data(flags.batch as usize, flags.time_steps as usize, flags.seed)?;
    let activity = activity(&flags, &x)?;
    let variables = VarMap::new();
    let net = network(&variables, flags.seed, &activity.thresholds)?;
    let inexact = plan.segments().any(|(_, segment)| matches!(segment.keep, Keep::InexactTimeChunks(_)));
    let net = Planned::new(net, plan, Session::new(flags.seed))?;
    let measured = train(&net, &variables, (&x, &labels), flags.steps)?;
    let report = serde_json::json!({
        "plan": flags.plan,
        "bn": if inexact { "per-chunk" } else { "exact" },
        "batch": flags.batch,
        "time_steps": flags.time_steps,
        "held_bytes_after_forward": measured.held,
        "peak_step_bytes": measured.peak,
        "step_ms": measured.step_ms,
        "loss": measured.losses,
        "grad_hash": measured.grad_hash,
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
