//! Small layers beside those of Candle: `cargo bench --bench small`.
//!
//! Forward and backward, to input and weight, of one layer; runs of both are interleaved and the medians of each reported.
#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor, Var};
use clap::Parser;
use comfy_table::presets::ASCII_MARKDOWN;
use memopt::module::{Context, Part, Session};
use memopt::nn::{init, Conv2d, Conv2dConfig, Linear, LinearConfig};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Microseconds, medians of interleaved runs.
#[derive(Parser)]
struct Flags {
    /// Time for each case, in milliseconds.
    #[arg(long, default_value_t = 300)]
    time: u64,
    /// Only the layers whose name contains this.
    #[arg(long, default_value = "")]
    layer: String,
    /// cargo passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

const CPU: &Device = &Device::Cpu;

/// What Candle computes for `[T N, ...]`.
type Candle = Box<dyn Fn(&Tensor) -> Tensor>;

struct Layer {
    name: String,
    ours: Part,
    candle: Candle,
    /// Of an image.
    from: Vec<usize>,
}

/// Input channels, output channels, kernel, padding, groups and size.
const CONVOLUTIONS: [(usize, usize, usize, usize, usize, usize); 15] = [
    (64, 64, 1, 0, 1, 4),
    (64, 64, 1, 0, 1, 8),
    (256, 256, 1, 0, 1, 8),
    (16, 16, 1, 0, 1, 16),
    (64, 64, 3, 1, 64, 8),
    (64, 64, 3, 1, 64, 16),
    (64, 64, 3, 1, 1, 3),
    (64, 64, 3, 1, 1, 4),
    (64, 64, 3, 1, 1, 8),
    (256, 256, 3, 1, 1, 3),
    (256, 256, 3, 1, 1, 4),
    (512, 512, 3, 1, 1, 6),
    (2, 16, 3, 1, 1, 8),
    (2, 16, 3, 1, 1, 32),
    (8, 8, 3, 1, 1, 8),
];
/// Input and output features.
const LINEAR: [(usize, usize); 5] = [(512, 10), (64, 64), (512, 512), (256, 1024), (4608, 10)];

fn layers() -> Vec<Layer> {
    let variables = candle_nn::VarMap::new();
    let vb = init::seeded(&variables, 1, DType::F32, CPU);
    let mut layers = Vec::new();
    for (inputs, outputs, kernel, padding, groups, size) in CONVOLUTIONS {
        let name = format!("conv{kernel}x{kernel} {inputs}->{outputs} {size}x{size}, {groups} groups");
        let config = Conv2dConfig::default().padding(padding).groups(groups).bias(false);
        let conv = Conv2d::new(inputs, outputs, kernel, config, vb.pp(&name)).unwrap();
        let weight = conv.weight().clone();
        let candle: Candle = Box::new(move |x| x.conv2d(&weight, padding, 1, 1, groups).unwrap());
        layers.push(Layer { name, ours: Part::of(&conv), candle, from: vec![inputs, size, size] });
    }
    for (inputs, outputs) in LINEAR {
        let name = format!("linear {inputs}->{outputs}");
        let linear = Linear::new(inputs, outputs, LinearConfig::default().bias(false), vb.pp(&name)).unwrap();
        let weight = linear.weight().clone();
        let candle: Candle = Box::new(move |x| x.matmul(&weight.t().unwrap()).unwrap());
        layers.push(Layer { name, ours: Part::of(&linear), candle, from: vec![inputs] });
    }
    layers
}

/// Microseconds of the forward and of both.
fn timed(forward: impl FnOnce() -> Tensor) -> [f64; 2] {
    let start = Instant::now();
    let y = forward();
    let half = start.elapsed();
    let gradients = y.backward().unwrap();
    let whole = start.elapsed();
    drop(black_box((y, gradients)));
    [half, whole].map(|time| time.as_secs_f64() * 1e6)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let flags = Flags::parse();
    let mut table = comfy_table::Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["us", "T, N", "input", "forward", "Candle", "ratio", "step", "Candle", "ratio"]);
    for layer in layers().iter().filter(|layer| layer.name.contains(&flags.layer)) {
        for (steps, images) in [(1, 1), (4, 4)] {
            for percent in [None, Some(10)] {
                let shape = [&[steps, images], layer.from.as_slice()].concat();
                let x = match percent {
                    None => Tensor::randn(0f32, 1., shape, CPU).unwrap(),
                    Some(percent) => {
                        let uniform = Tensor::rand(0f32, 1., shape, CPU).unwrap();
                        uniform.lt(percent as f32 / 100.).unwrap().to_dtype(DType::F32).unwrap()
                    }
                };
                let ours = Var::from_tensor(&x).unwrap();
                let candle = Var::from_tensor(&x.flatten_to(1).unwrap()).unwrap();
                let mut times = [const { Vec::new() }; 4];
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(flags.time) || times[0].len() < 9 {
                    let mut context = Context::training(&Session::new(0));
                    let [forward, step] = timed(|| {
                        let y = layer.ours.forward(ours.as_tensor().into(), &mut context).unwrap();
                        y.into_dense("layer").unwrap()
                    });
                    let [candle_forward, candle_step] = timed(|| (layer.candle)(&candle));
                    let all = [forward, candle_forward, step, candle_step];
                    times.iter_mut().zip(all).for_each(|(times, time)| times.push(time));
                }
                let [forward, candle_forward, step, candle_step] = times.map(median);
                let show = |us: f64| format!("{us:.0}");
                let ratio = |a: f64, b: f64| format!("{:.2}", a / b);
                table.add_row([
                    layer.name.clone(),
                    format!("{steps}, {images}"),
                    percent.map_or("dense".to_owned(), |percent| format!("{percent}%")),
                    show(forward),
                    show(candle_forward),
                    ratio(forward, candle_forward),
                    show(step),
                    show(candle_step),
                    ratio(step, candle_step),
                ]);
            }
        }
    }
    println!("{table}");
}
