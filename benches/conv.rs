//! Convolutions of 3x3, dense and of spikes: `cargo bench --bench conv`.
//!
//! Runs of all operations are interleaved and the medians of each reported, because machines drift. Candle's own
//! convolution is there for comparison; `--peer FILE` adds the ratios to another library's times, one JSON object a line:
//! `{"name": "conv3x3 64->128 48x48 b40 forward", "ms": 88.0}`, and the same for `dx` and `dw`.
#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{CpuStorage, DType, Device, Tensor, Var};
use clap::Parser;
use comfy_table::presets::ASCII_MARKDOWN;
use memopt::autograd::{backward_from, Gradient};
use memopt::module::{Checkpointable, Context, Session};
use memopt::nn::{init, Conv2d, Conv2dConfig};
use memopt::parameters::Parameters;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

/// Milliseconds, medians of interleaved runs, 40 images.
#[derive(Parser)]
struct Flags {
    /// Interleaved runs, after two that do not count.
    #[arg(long, default_value_t = 9)]
    runs: usize,
    /// Times of another library, one JSON object a line.
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Only the shapes whose name contains this.
    #[arg(long, default_value = "")]
    shape: String,
    /// Only the operation of this name.
    #[arg(long)]
    only: Option<String>,
    /// Shares of ones, in percent.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 10, 20])]
    percent: Vec<u32>,
    /// The least times instead of the medians: for a machine with other load.
    #[arg(long)]
    least: bool,
    /// Whether to leave Candle out.
    #[arg(long)]
    alone: bool,
    /// cargo passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Input channels, output channels, size.
const SHAPES: [(usize, usize, usize); 4] = [(64, 128, 48), (128, 256, 24), (256, 512, 12), (512, 512, 6)];
const IMAGES: usize = 40;
const CPU: &Device = &Device::Cpu;

/// Its column, and a run: the milliseconds it took.
type Operation = (String, Box<dyn FnMut() -> f64>);

fn timed<T>(f: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let result = f();
    let ms = start.elapsed().as_secs_f64() * 1e3;
    drop(black_box(result));
    ms
}

fn training() -> Context {
    Context::training(&Session::new(0))
}

fn forward(conv: &Conv2d, x: &Tensor) -> Tensor {
    conv.forward(x.into(), &mut training()).unwrap().into_dense("conv").unwrap()
}

/// Only what comes back from the output's gradient is timed.
fn backward(conv: &Conv2d, x: &Tensor, dy: &Tensor) -> f64 {
    let y = forward(conv, x);
    // Owned, as from a layer behind this one.
    let storage = CpuStorage::F32(dy.flatten_all().unwrap().to_vec1().unwrap());
    let (output, dy) = (y.clone(), Gradient::new(storage, dy.shape()));
    let ms = timed(|| backward_from(vec![(output, dy)]).unwrap());
    drop(y);
    ms
}

fn operations((inputs, outputs, size): (usize, usize, usize), flags: &Flags) -> Vec<Operation> {
    let shape = |channels| (10, IMAGES / 10, channels, size, size);
    let variables = candle_nn::VarMap::new();
    let vb = init::seeded(&variables, 1, DType::F32, CPU);
    let conv = Conv2d::new(inputs, outputs, 3, Conv2dConfig::default().padding(1).bias(false), vb).unwrap();
    let frozen = conv.detached();
    let dense = Tensor::randn(0f32, 1., shape(inputs), CPU).unwrap();
    let dy = Tensor::randn(0f32, 1., shape(outputs), CPU).unwrap();
    let mut operations: Vec<Operation> = Vec::new();
    let (layer, x) = (frozen.clone(), dense.clone());
    operations.push(("forward".into(), Box::new(move || timed(|| forward(&layer, &x)))));
    let (layer, x, gradient) = (frozen.clone(), Var::from_tensor(&dense).unwrap(), dy.clone());
    operations.push(("dx".into(), Box::new(move || backward(&layer, &x, &gradient))));
    let (layer, x, gradient) = (conv.clone(), dense.clone(), dy.clone());
    operations.push(("dw".into(), Box::new(move || backward(&layer, &x, &gradient))));
    for percent in &flags.percent {
        let uniform = Tensor::rand(0f32, 1., shape(inputs), CPU).unwrap();
        let spikes = uniform.lt(*percent as f32 / 100.).unwrap().to_dtype(DType::F32).unwrap();
        let (layer, x) = (frozen.clone(), spikes.clone());
        operations.push((format!("forward {percent}%"), Box::new(move || timed(|| forward(&layer, &x)))));
        let (layer, gradient) = (conv.clone(), dy.clone());
        operations.push((format!("dw {percent}%"), Box::new(move || backward(&layer, &spikes, &gradient))));
    }
    if !flags.alone {
        let (x, weight) = (dense.flatten_to(1).unwrap(), frozen.weight().clone());
        operations.push((
            "Candle forward".into(),
            Box::new(move || timed(|| x.conv2d(&weight, 1, 1, 1, 1).unwrap())),
        ));
    }
    operations.retain(|(name, _)| flags.only.as_ref().is_none_or(|only| only == name));
    operations
}

fn summary(mut times: Vec<f64>, least: bool) -> f64 {
    times.sort_by(f64::total_cmp);
    times[if least { 0 } else { times.len() / 2 }]
}

/// The peer's times by name.
fn peer(flags: &Flags) -> BTreeMap<String, f64> {
    let Some(path) = &flags.peer else { return BTreeMap::new() };
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|line| Some((line["name"].as_str()?.to_owned(), line["ms"].as_f64()?))).collect()
}

fn main() {
    let flags = Flags::parse();
    let peer = peer(&flags);
    let name = |(inputs, outputs, size): (usize, usize, usize)| {
        format!("conv3x3 {inputs}->{outputs} {size}x{size} b{IMAGES}")
    };
    let shapes: Vec<_> = SHAPES.into_iter().filter(|&shape| name(shape).contains(&flags.shape)).collect();
    let mut operations: Vec<Vec<Operation>> = shapes.iter().map(|&shape| operations(shape, &flags)).collect();
    let columns: Vec<String> = operations[0].iter().map(|(column, _)| column.clone()).collect();
    let mut times = vec![vec![Vec::new(); columns.len()]; shapes.len()];
    for run in 0..flags.runs + 2 {
        for (operations, times) in operations.iter_mut().zip(&mut times) {
            for ((_, operation), times) in operations.iter_mut().zip(times) {
                let ms = operation();
                if run >= 2 {
                    times.push(ms);
                }
            }
        }
    }
    let summary = |times| summary(times, flags.least);
    let medians: Vec<Vec<f64>> =
        times.into_iter().map(|row| row.into_iter().map(summary).collect()).collect();

    // The peer computes everything densely.
    let of_peer = |shape: (usize, usize, usize), column: &str| {
        let operation = column.split(' ').next().unwrap().replace("Candle", "forward");
        peer.get(&format!("{} {operation}", name(shape))).copied()
    };
    let show = |ms: f64, peer: Option<f64>| match peer {
        Some(peer) => format!("{ms:.1} ({:.2})", ms / peer),
        None => format!("{ms:.1}"),
    };
    let mut table = comfy_table::Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(std::iter::once("ms").chain(columns.iter().map(String::as_str)));
    for (&shape, medians) in shapes.iter().zip(&medians) {
        let cells = columns.iter().zip(medians).map(|(column, &ms)| show(ms, of_peer(shape, column)));
        table.add_row(std::iter::once(name(shape)).chain(cells));
    }
    let sum = |index: usize| medians.iter().map(|row| row[index]).sum::<f64>();
    let peer_sum = |column: &str| shapes.iter().map(|&shape| of_peer(shape, column)).sum::<Option<f64>>();
    let sums = columns.iter().enumerate().map(|(index, column)| show(sum(index), peer_sum(column)));
    table.add_row(std::iter::once("sum".to_owned()).chain(sums));
    println!("{table}");

    if flags.only.is_some() {
        return;
    }
    // A step: forward, gradient of the input, gradient of the weight.
    let peer_step = || Some(peer_sum("forward")? + peer_sum("dx")? + peer_sum("dw")?);
    let column = |name: String| columns.iter().position(|column| *column == name).map_or(f64::NAN, sum);
    println!("\nforward + dx + dw, dense: {}", show(sum(0) + sum(1) + sum(2), peer_step()));
    for percent in &flags.percent {
        let step = column(format!("forward {percent}%")) + sum(1) + column(format!("dw {percent}%"));
        println!("forward + dx + dw, {percent}% ones: {}", show(step, peer_step()));
    }
}
