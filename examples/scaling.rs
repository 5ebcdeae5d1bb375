//! How memory and time of a training step of the CIFAR10-DVS VGG grow with the batch and the time steps, plan by plan.
//!
//! `cargo run --release --example scaling -- --batch 4 --time-steps 5,10,20`

#[path = "common/vgg.rs"]
mod vgg;

use candle_core::Result;
use candle_nn::VarMap;
use clap::Parser;
use memopt::checkpoint::Planned;
use memopt::memory::CountingAllocator;
use memopt::module::Session;
use vgg::{data, network, plan, train, Measured, BLOCKS};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

/// Memory and time of a training step of the CIFAR10-DVS VGG, for batches and time steps.
///
/// Peak and time as `vgg_step` has them. The columns `/ linear` are ratios to growth in proportion to samples times time
/// steps, from the smallest of them that the same plan was measured with: 1 is linear, less is sublinear.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Numbers of samples in a batch.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_parser = clap::value_parser!(u32).range(1..))]
    batch: Vec<u32>,
    /// Numbers of time steps.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 10, 20], value_parser = clap::value_parser!(u32).range(1..))]
    time_steps: Vec<u32>,
    /// Plans of `vgg_step`, or `tcgc`: time chunks of so many steps as `--chunk-steps` says.
    #[arg(long, value_delimiter = ',', default_values_t = ["plain", "gc-bit", "tcgc", "ccgc:4"].map(String::from))]
    plans: Vec<String>,
    /// Time steps of a chunk of the plan `tcgc`.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    chunk_steps: u32,
    /// Steps that are measured, after one that warms up.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Seed of weights, data and dropout.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON line for each measurement instead of a table.
    #[arg(long)]
    json: bool,
}

/// One measurement.
struct Point {
    plan: String,
    batch: u32,
    time_steps: u32,
    measured: Measured,
}

impl Point {
    /// Peak and time over those of growth from `smallest` in proportion to samples times time steps.
    fn over_linear(&self, smallest: &Point) -> [f64; 2] {
        let size = |point: &Point| f64::from(point.batch) * f64::from(point.time_steps);
        let growth = size(self) / size(smallest);
        let (ours, first) = (&self.measured, &smallest.measured);
        [ours.peak as f64 / first.peak as f64 / growth, ours.step_ms / first.step_ms / growth]
    }
}

fn measure(flags: &Flags, name: &str, batch: u32, time_steps: u32) -> Result<Point> {
    let chunks = match name {
        "tcgc" => format!("tcgc:{}", time_steps.div_ceil(flags.chunk_steps)),
        other => other.to_owned(),
    };
    let (x, labels) = data(batch as usize, time_steps as usize, flags.seed)?;
    let variables = VarMap::new();
    let net = network(&variables, flags.seed, &[1.; BLOCKS])?;
    let net = Planned::new(net, plan(&chunks, false)?, Session::new(flags.seed))?;
    let measured = train(&net, &variables, (&x, &labels), flags.steps)?;
    Ok(Point { plan: name.to_owned(), batch, time_steps, measured })
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let mut sizes: Vec<(u32, u32)> =
        flags.batch.iter().flat_map(|n| flags.time_steps.iter().map(|t| (*n, *t))).collect();
    sizes.sort_by_key(|&(n, t)| (u64::from(n) * u64::from(t), n));
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["plan", "N", "T", "peak MB", "/ linear", "step ms", "/ linear"]);
    for name in &flags.plans {
        let mut smallest: Option<Point> = None;
        for &(batch, time_steps) in &sizes {
            let point = measure(&flags, name, batch, time_steps)?;
            let [peak, time] = point.over_linear(smallest.as_ref().unwrap_or(&point));
            if flags.json {
                let line = serde_json::json!({
                    "plan": point.plan,
                    "batch": batch,
                    "time_steps": time_steps,
                    "held_bytes_after_forward": point.measured.held,
                    "peak_step_bytes": point.measured.peak,
                    "peak_over_linear": peak,
                    "step_ms": point.measured.step_ms,
                    "step_over_linear": time,
                    "loss": point.measured.losses,
                    "grad_hash": point.measured.grad_hash,
                });
                println!("{line}");
            } else {
                table.add_row([
                    point.plan.clone(),
                    batch.to_string(),
                    time_steps.to_string(),
                    format!("{:.1}", point.measured.peak as f64 / 1e6),
                    format!("{peak:.2}"),
                    format!("{:.0}", point.measured.step_ms),
                    format!("{time:.2}"),
                ]);
            }
            smallest.get_or_insert(point);
        }
    }
    if !flags.json {
        println!("{table}");
    }
    Ok(())
}
