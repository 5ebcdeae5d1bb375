//! Trains a small spiking VGG on 1,797 real digits, unoptimized and under a plan, with the same seed in one run: same losses to
//! the bit, less memory.
//!
//! `cargo run --example digits` (with `--release` for figures); `--help` lists the flags.

mod common;

use candle_core::{DType, Device, ModuleT, Result, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use clap::Parser;
use common::{end, memory_table, Digits};
use indicatif::{ProgressBar, ProgressStyle};
use memopt::checkpoint::{plan_for_targets, Planned};
use memopt::memory::{held, live, mark, CountingAllocator, Curve, Scope, Timeline};
use memopt::module::Session;
use memopt::nn::{
    cross_entropy_of_mean, init::seeded, AvgPool2d, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig,
    Flatten, Lif, Linear, LinearConfig, Surrogate,
};
use memopt::plan::{Plan, Segment};
use memopt::Checkpointable;
use plotters::prelude::*;
use rand::{rngs::StdRng, seq::SliceRandom, SeedableRng};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CPU: &Device = &Device::Cpu;

/// Train a small spiking VGG on digits, unoptimized and under a plan, and compare.
///
/// The network: three blocks conv3x3 - batch norm - LIF (the second and third pool first), average pool, linear. Each image is
/// shown for all time steps; the logits are averaged over them. Both trainings get the same seed, images and order.
#[derive(Parser)]
#[command(version, after_help = "Exits with 1 if any loss differs between the two by a single bit.")]
struct Flags {
    /// Passes over the training images.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    epochs: u16,
    /// Images in a batch.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=1437))]
    batch: u16,
    /// Time steps that each image is shown for.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    time_steps: u16,
    /// Seed of the weights and of the order of the images.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How each block is kept for backward: gc (recomputed), tcgc:K or ccgc:K (in K time or channel chunks), and, after a
    /// space, how its input is: null, bit, byte, sparse or auto.
    #[arg(long, default_value = "gc", value_parser = parse_segment)]
    segment: Segment,
    /// Write both memory curves of one step to this SVG file.
    #[arg(long, default_value = "target/digits.svg")]
    svg: PathBuf,
}

fn parse_segment(text: &str) -> std::result::Result<Segment, String> {
    text.parse().map_err(|e: memopt::Error| e.to_string())
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(pool, conv, bn, neuron)]
struct Block {
    pool: Option<AvgPool2d>,
    conv: Conv2d,
    bn: BatchNorm2d,
    neuron: Lif,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(features, pool, flatten, classifier)]
struct Vgg {
    features: Vec<Block>,
    pool: AvgPool2d,
    flatten: Flatten,
    classifier: Linear,
}

const CHANNELS: [usize; 3] = [16, 32, 64];

impl Vgg {
    fn new(vb: VarBuilder) -> Result<Self> {
        let mut features = Vec::new();
        let mut from = 1;
        for (index, to) in CHANNELS.into_iter().enumerate() {
            let vb = vb.pp("features").pp(index);
            features.push(Block {
                pool: (index > 0).then(|| AvgPool2d::new(2)),
                conv: Conv2d::new(from, to, 3, Conv2dConfig::default().padding(1), vb.pp("conv"))?,
                bn: BatchNorm2d::new(to, BatchNormConfig::default(), vb.pp("bn"))?,
                neuron: Lif::new(2.)?.decay_input(false).detach_reset(true).surrogate(Surrogate::atan()),
            });
            from = to;
        }
        let classifier = Linear::new(from, 10, LinearConfig::default(), vb.pp("classifier"))?;
        Ok(Vgg { features, pool: AvgPool2d::new(2), flatten: Flatten, classifier })
    }
}

/// One of the two trainings.
struct Training {
    name: &'static str,
    net: Planned<Vgg>,
    optimizer: AdamW,
    variables: VarMap,
    losses: Vec<f32>,
    held: usize,
    peak: usize,
    /// Of each step, in milliseconds.
    times: Vec<f64>,
    accuracy: f64,
    segments: String,
}

impl Training {
    fn new(name: &'static str, flags: &Flags, plan: impl Fn(&Vgg) -> Plan) -> Result<Self> {
        let variables = VarMap::new();
        let net = Vgg::new(seeded(&variables, flags.seed, DType::F32, CPU))?;
        let plan = plan(&net);
        let net = Planned::new(net, plan, Session::new(flags.seed))?;
        let trained = memopt::parameters::parameters(&*net).into_iter();
        let trained =
            trained.map(|(_, tensor)| candle_core::Var::from_tensor(&tensor)).collect::<Result<_>>()?;
        let optimizer = AdamW::new(trained, ParamsAdamW { lr: 5e-3, ..Default::default() })?;
        let (losses, times) = (Vec::new(), Vec::new());
        let segments = String::new();
        Ok(Training {
            name,
            net,
            optimizer,
            variables,
            losses,
            held: 0,
            peak: 0,
            times,
            accuracy: 0.,
            segments,
        })
    }

    /// One step. Counts what is held after forward and the peak, above what was there before.
    fn step(&mut self, x: &Tensor, labels: &Tensor) -> Result<()> {
        let scope = Scope::enter("step").map_err(memopt::Error::from)?;
        let before = live().unwrap_or_default();
        let start = Instant::now();
        let loss = cross_entropy_of_mean(&self.net.forward_t(x, true)?, labels)?;
        self.held = self.held.max(live().unwrap_or_default().saturating_sub(before));
        if self.segments.is_empty() {
            self.segments = held()
                .segments
                .iter()
                .map(|s| format!("  {}: {} bytes\n", s.segment, s.packed + s.shared))
                .collect();
        }
        self.optimizer.backward_step(&loss)?;
        self.times.push(start.elapsed().as_secs_f64() * 1e3);
        self.losses.push(loss.to_scalar()?);
        drop(loss);
        self.peak = self.peak.max(scope.finish().peak_above_start());
        Ok(())
    }

    fn evaluate(&mut self, x: &Tensor, labels: &Tensor) -> Result<()> {
        let logits = self.net.predict(x)?.into_dense("logits")?.mean(0)?;
        let right = logits.argmax(1)?.eq(labels)?.to_dtype(DType::F32)?.mean_all()?;
        self.accuracy = 100. * f64::from(right.to_scalar::<f32>()?);
        Ok(())
    }

    /// The memory curve of one more forward and backward, which changes no weight. (It moves running statistics, after
    /// all that is compared.)
    fn curve(&self, x: &Tensor, labels: &Tensor) -> Result<Curve> {
        let timeline = Timeline::start().map_err(memopt::Error::from)?;
        let loss = cross_entropy_of_mean(&self.net.forward_t(x, true)?, labels)?;
        mark("forward done");
        let gradients = loss.backward()?;
        mark("backward done");
        drop((loss, gradients));
        Ok(timeline.finish())
    }

    fn median_ms(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    fn variables_as_bits(&self) -> Result<Vec<(String, Vec<u32>)>> {
        let Ok(data) = self.variables.data().lock() else { candle_core::bail!("the variables are poisoned") };
        let mut all = Vec::new();
        for (name, variable) in data.iter() {
            let values = variable.flatten_all()?.to_vec1::<f32>()?;
            all.push((name.clone(), values.iter().map(|v| v.to_bits()).collect()));
        }
        all.sort();
        Ok(all)
    }
}

/// Draws the live bytes and the peaks of both curves.
fn draw(path: &Path, curves: &[(&str, Curve)]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let ms = |m: &memopt::memory::Mark| m.elapsed.as_secs_f64() * 1e3;
    let end = curves.iter().flat_map(|(_, c)| c.marks()).map(ms).fold(1., f64::max);
    let top = curves.iter().map(|(_, c)| c.peak() as f64 / 1e6).fold(0.1, f64::max) * 1.1;
    let root = SVGBackend::new(path, (800, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Memory of one training step", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0f64..end, 0f64..top)?;
    chart.configure_mesh().x_desc("ms").y_desc("MB above the start").draw()?;
    for ((name, curve), color) in curves.iter().zip([&RED, &BLUE]) {
        // A mark's peak lies somewhere between it and the mark before; it is drawn halfway.
        let mut points = vec![(0., 0.)];
        let mut last = 0.;
        for mark in curve.marks() {
            points.push(((last + ms(mark)) / 2., mark.peak_since_previous as f64 / 1e6));
            points.push((ms(mark), mark.live as f64 / 1e6));
            last = ms(mark);
        }
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// Trains both; whether all losses and all variables are identical.
fn run(flags: &Flags, out: &mut impl Write) -> Result<bool> {
    let digits = Digits::load();
    let (held_out, mut training) = digits.split();
    let (count, batch) = (digits.len(), usize::from(flags.batch));
    let (t, n) = (flags.time_steps, held_out.len());
    writeln!(
        out,
        "{count} digits of 8x8, {n} of them held out; T = {t}, batch {batch}, each block {}",
        flags.segment
    )?;
    let mut both = [
        Training::new("unoptimized", flags, |_| Plan::new())?,
        Training::new("checkpointed", flags, |net| plan_for_targets(net, flags.segment.clone()))?,
    ];
    let mut random = StdRng::seed_from_u64(flags.seed.wrapping_add(1));
    let (test_x, test_labels) = digits.select(&held_out, flags.time_steps)?;
    for epoch in 1..=flags.epochs {
        training.shuffle(&mut random);
        // A last batch of one image has no statistics.
        let batches: Vec<&[usize]> = training.chunks(batch).filter(|batch| batch.len() > 1).collect();
        let bar = ProgressBar::new(batches.len() as u64)
            .with_style(
                ProgressStyle::with_template("epoch {msg} {bar:40} {pos}/{len} {eta}")
                    .map_err(candle_core::Error::wrap)?,
            )
            .with_message(epoch.to_string());
        for batch in &batches {
            let (x, labels) = digits.select(batch, flags.time_steps)?;
            for training in &mut both {
                training.step(&x, &labels)?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let mut line = format!("epoch {epoch}:");
        for training in &mut both {
            training.evaluate(&test_x, &test_labels)?;
            let recent = &training.losses[training.losses.len() - batches.len()..];
            let mean = recent.iter().map(|l| f64::from(*l)).sum::<f64>() / recent.len() as f64;
            line += &format!("  {}: loss {mean:.6}, held out {:.2} %", training.name, training.accuracy);
        }
        writeln!(out, "{line}")?;
    }
    let [plain, ours] = &both;
    let mut table = memory_table([plain.name, ours.name], [plain.held, ours.held], [plain.peak, ours.peak]);
    let times = both.each_ref().map(Training::median_ms);
    let ms = times.map(|ms| format!("{ms:.1} ms"));
    table.add_row(["a step (median)", &ms[0], &ms[1], &format!("{:.2}x as long", times[1] / times[0])]);
    let accuracy = both.each_ref().map(|training| format!("{:.2} %", training.accuracy));
    table.add_row(["accuracy, held out", &accuracy[0], &accuracy[1], ""]);
    writeln!(out, "\n{table}\n\nKept for backward by the segments:\n{}", ours.segments)?;

    let (x, labels) = digits.select(&training[..batch], flags.time_steps)?;
    let curves = [(plain.name, plain.curve(&x, &labels)?), (ours.name, ours.curve(&x, &labels)?)];
    writeln!(out, "Live bytes over one more step, {}:\n{}", ours.name, curves[1].1)?;
    draw(&flags.svg, &curves)
        .map_err(|e| candle_core::Error::Msg(format!("{}: {e}", flags.svg.display())))?;
    writeln!(out, "both curves: {}", flags.svg.display())?;
    let same = plain.losses.iter().zip(&ours.losses).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
    let variables = plain.variables_as_bits()? == ours.variables_as_bits()?;
    let all = plain.losses.len();
    let state = if variables { "identical to the bit" } else { "different" };
    writeln!(out, "losses: {same} of {all} identical to the bit; weights and running statistics: {state}")?;
    Ok(same == all && variables)
}

fn main() -> Result<ExitCode> {
    end(run(&Flags::parse(), &mut std::io::stdout()))
}
