//! Trains a small spiking network, written in plain Candle, on 1,797 real images of digits: once as it is, and once with
//! each layer in a checkpointed closure, side by side. Same losses to the bit, less memory.
//!
//! `cargo run --example closure` (with `--release` for figures); `--help` lists the flags.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use clap::{Parser, ValueEnum};
use common::{end, memory_table, Digits};
use memopt::checkpoint::{checkpoint, Options};
use memopt::compress::{self, Auto, Bit, Byte, Null, Sparse, SpikeCompressor};
use memopt::memory::{live, CountingAllocator, Curve, Scope, Timeline};
use rand::{rngs::StdRng, seq::SliceRandom, Rng, SeedableRng};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Counts every heap byte; what the example prints is read from it.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CPU: &Device = &Device::Cpu;

/// Train a small spiking network on digits with and without checkpointed closures, and compare.
#[derive(Parser)]
#[command(version, after_help = "Exits with 1 if any loss differs between the two by a single bit.")]
struct Flags {
    /// Passes over the training images.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..))]
    epochs: u16,
    /// Images in a batch.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1437))]
    batch: u16,
    /// Time steps that each image is shown for.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    time_steps: u16,
    /// Seed of the weights and of the order of the images.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How the layers keep their inputs for backward.
    #[arg(long, value_enum, default_value_t = Compressor::Auto)]
    compressor: Compressor,
}

#[derive(Clone, Copy, ValueEnum)]
enum Compressor {
    /// As they are.
    Null,
    /// One bit an element; inputs that are not spikes are kept as they are, and counted.
    Bit,
    /// One byte an element.
    Byte,
    /// The positions of what is not zero.
    Sparse,
    /// The smallest exact one of these.
    Auto,
}

impl Compressor {
    fn build(self) -> Arc<dyn SpikeCompressor> {
        match self {
            Compressor::Null => Arc::new(Null),
            Compressor::Bit => Arc::new(Bit),
            Compressor::Byte => Arc::new(Byte),
            Compressor::Sparse => Arc::new(Sparse),
            Compressor::Auto => Arc::new(Auto),
        }
    }
}

/// Leaky integrate-and-fire over all time steps, in plain Candle: `x` is `[T, N, ...]`.
///
/// v += (x - v) / 2; spike = v >= 1; v = 0 where it fired. The gradient of the step is that of a sigmoid.
fn fire(x: &Tensor) -> Result<Tensor> {
    let mut spikes = Vec::with_capacity(x.dim(0)?);
    let mut v = x.get(0)?.zeros_like()?;
    for t in 0..x.dim(0)? {
        v = ((&v + x.get(t)?)? * 0.5)?;
        let soft = candle_nn::ops::sigmoid(&((&v - 1.)? * 4.)?)?;
        let hard = v.detach().ge(1.)?.to_dtype(x.dtype())?;
        spikes.push((&soft + (&hard - soft.detach())?)?);
        v = (v * (1. - hard)?)?;
    }
    Tensor::stack(&spikes, 0)
}

/// conv3x3 - LIF, average pool - conv3x3 - LIF, average pool - linear - mean over time.
#[derive(Clone)]
struct Network {
    convolutions: [(Var, Var); 2],
    head: Var,
}

impl Network {
    fn new(random: &mut StdRng) -> Result<Self> {
        let mut uniform = |shape: &[usize], fan_in: usize| {
            let bound = (6. / fan_in as f32).sqrt();
            let values = (0..shape.iter().product()).map(|_| random.random_range(-bound..bound)).collect();
            Var::from_tensor(&Tensor::from_vec::<_, f32>(values, shape, CPU)?)
        };
        let convolutions = [
            (uniform(&[16, 1, 3, 3], 9)?, uniform(&[16], 9)?),
            (uniform(&[32, 16, 3, 3], 16 * 9)?, uniform(&[32], 16 * 9)?),
        ];
        Ok(Network { convolutions, head: uniform(&[32 * 4, 10], 32 * 4)? })
    }

    fn variables(&self) -> Vec<Var> {
        let mut all: Vec<Var> = self.convolutions.iter().flat_map(|(w, b)| [w.clone(), b.clone()]).collect();
        all.push(self.head.clone());
        all
    }

    /// Three layers as closures of plain Candle code: `[T, N, C, H, W]` in, spikes out, logits at the end.
    fn layers(&self) -> Vec<Layer> {
        let mut layers: Vec<Layer> = Vec::new();
        for (i, (w, b)) in self.convolutions.clone().into_iter().enumerate() {
            layers.push(Box::new(move |x| {
                let (t, n) = (x[0].dim(0)?, x[0].dim(1)?);
                let images = x[0].flatten(0, 1)?;
                let images = if i == 0 { images } else { images.avg_pool2d(2)? };
                let z = images.conv2d(&w, 1, 1, 1, 1)?.broadcast_add(&b.reshape((1, (), 1, 1))?)?;
                let (_, c, height, width) = z.dims4()?;
                fire(&z.reshape((t, n, c, height, width))?)
            }));
        }
        let head = self.head.clone();
        layers.push(Box::new(move |x| x[0].mean(0)?.avg_pool2d(2)?.flatten_from(1)?.matmul(&head)));
        layers
    }
}

type Layer = Box<dyn Fn(&[Tensor]) -> Result<Tensor> + Send>;

/// One of the two trainings.
struct Training {
    network: Network,
    optimizer: AdamW,
    /// Checkpointed with this compressor, or plain.
    compressor: Option<Arc<dyn SpikeCompressor>>,
    held: usize,
    peak: usize,
}

impl Training {
    fn new(flags: &Flags, compressor: Option<Arc<dyn SpikeCompressor>>) -> Result<Self> {
        let network = Network::new(&mut StdRng::seed_from_u64(flags.seed))?;
        let parameters = ParamsAdamW { lr: 1e-2, ..Default::default() };
        let optimizer = AdamW::new(network.variables(), parameters)?;
        Ok(Training { network, optimizer, compressor, held: 0, peak: 0 })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = x.clone();
        for (i, layer) in self.network.layers().into_iter().enumerate() {
            y = match &self.compressor {
                None => layer(&[y])?,
                Some(compressor) => {
                    let options = Options::new(format!("layer {i}")).compressor(compressor.clone());
                    checkpoint(layer, &[y], options)?
                }
            };
        }
        Ok(y)
    }

    /// One step; the loss, exactly. Counts what is held after forward and the peak, above what was there before.
    fn step(&mut self, x: &Tensor, labels: &Tensor) -> Result<f32> {
        let scope = Scope::enter("step").map_err(memopt::Error::from)?;
        let before = live().unwrap_or_default();
        let loss = candle_nn::loss::cross_entropy(&self.forward(x)?, labels)?;
        self.held = self.held.max(live().unwrap_or_default().saturating_sub(before));
        self.optimizer.backward_step(&loss)?;
        let value = loss.to_scalar()?;
        drop(loss);
        self.peak = self.peak.max(scope.finish().peak_above_start());
        Ok(value)
    }

    /// The memory curve of one more forward and backward, which changes no weight.
    fn curve(&self, x: &Tensor, labels: &Tensor) -> Result<Curve> {
        let timeline = Timeline::start().map_err(memopt::Error::from)?;
        let loss = candle_nn::loss::cross_entropy(&self.forward(x)?, labels)?;
        memopt::memory::mark("forward done");
        let gradients = loss.backward()?;
        memopt::memory::mark("backward done");
        drop((loss, gradients));
        Ok(timeline.finish())
    }

    fn accuracy(&self, x: &Tensor, labels: &Tensor) -> Result<f64> {
        let right = self.forward(x)?.argmax(1)?.eq(labels)?.to_dtype(DType::F64)?;
        Ok(100. * right.mean_all()?.to_scalar::<f64>()?)
    }
}

/// Trains both; whether all losses are identical.
fn run(flags: &Flags, out: &mut impl Write) -> Result<bool> {
    let digits = Digits::load();
    let (held_out, mut training) = digits.split();
    writeln!(
        out,
        "{} digits of 8x8, {} of them held out; T = {}, batch {}",
        digits.len(),
        held_out.len(),
        flags.time_steps,
        flags.batch
    )?;
    let mut plain = Training::new(flags, None)?;
    let mut ours = Training::new(flags, Some(flags.compressor.build()))?;
    let mut random = StdRng::seed_from_u64(flags.seed.wrapping_add(1));
    let (mut steps, mut differing) = (0, 0);
    for epoch in 1..=flags.epochs {
        training.shuffle(&mut random);
        let mut sum = 0.;
        for batch in training.chunks(flags.batch.into()) {
            let (x, labels) = digits.select(batch, flags.time_steps)?;
            let (a, b) = (plain.step(&x, &labels)?, ours.step(&x, &labels)?);
            steps += 1;
            differing += usize::from(a.to_bits() != b.to_bits());
            sum += f64::from(a) * batch.len() as f64;
        }
        writeln!(out, "epoch {epoch}: loss {:.4}", sum / training.len() as f64)?;
    }

    let (x, labels) = digits.select(&held_out, flags.time_steps)?;
    let mut table =
        memory_table(["plain Candle", "checkpointed"], [plain.held, ours.held], [plain.peak, ours.peak]);
    let accuracy = [plain.accuracy(&x, &labels)?, ours.accuracy(&x, &labels)?].map(|a| format!("{a:.2} %"));
    table.add_row(["accuracy, held out", &accuracy[0], &accuracy[1], ""]);
    writeln!(out, "\n{table}\n\nHow the inputs were kept, by layer:")?;
    for layer in compress::counts() {
        let kept = layer.kept_bytes as f64 / layer.raw_bytes as f64;
        let encodings: Vec<String> = layer.encodings.iter().map(|(name, n)| format!("{name} {n}")).collect();
        writeln!(
            out,
            "  {}: {}; {:.1} % of the bytes; {} fallbacks",
            layer.segment,
            encodings.join(", "),
            100. * kept,
            layer.fallbacks
        )?;
    }
    let (x, labels) = digits.select(&training[..usize::from(flags.batch)], flags.time_steps)?;
    writeln!(out, "\nLive bytes over one more step, checkpointed:\n{}", ours.curve(&x, &labels)?)?;
    writeln!(out, "losses: {} of {steps} identical to the bit", steps - differing)?;
    Ok(differing == 0)
}

fn main() -> Result<ExitCode> {
    end(run(&Flags::parse(), &mut std::io::stdout()))
}
