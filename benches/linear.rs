//! Linear layers and convolutions of 1x1, of spikes and dense: `cargo bench --bench linear`.
//!
//! Dense inputs are spikes of height two, which no kernel takes for spikes. Runs are interleaved and the medians of each
//! reported, with the ratio of spikes to dense.
#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{CpuStorage, DType, Device, Tensor};
use clap::Parser;
use comfy_table::presets::ASCII_MARKDOWN;
use memopt::autograd::{backward_from, Gradient};
use memopt::module::{Context, Part, Session};
use memopt::nn::{init, Conv2d, Conv2dConfig, Linear, LinearConfig};
use std::hint::black_box;
use std::time::Instant;

/// Milliseconds, medians of interleaved runs.
#[derive(Parser)]
struct Flags {
    /// Interleaved runs, after two that do not count.
    #[arg(long, default_value_t = 11)]
    runs: usize,
    /// Only the shapes whose name contains this.
    #[arg(long, default_value = "")]
    shape: String,
    /// Shares of ones, in percent.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 10, 20, 40])]
    percent: Vec<u32>,
    /// cargo passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

const CPU: &Device = &Device::Cpu;

/// A layer and the shapes of its input and output.
struct Shape {
    name: String,
    layer: Part,
    from: Vec<usize>,
    to: Vec<usize>,
}

fn shapes() -> Vec<Shape> {
    let variables = candle_nn::VarMap::new();
    let vb = init::seeded(&variables, 1, DType::F32, CPU);
    let mut shapes = Vec::new();
    for (inputs, outputs, rows) in [
        (256, 1024, 4),
        (512, 512, 4),
        (4608, 10, 4),
        (256, 1024, 256),
        (512, 512, 64),
        (4608, 512, 16),
        (512, 64, 64),
        (64, 64, 64),
        (16, 64, 64),
        (256, 8, 64),
    ] {
        let name = format!("linear {inputs}->{outputs}, {rows} rows");
        let layer = Linear::new(inputs, outputs, LinearConfig::default().bias(false), vb.pp(&name)).unwrap();
        let (from, to) = (vec![10, rows, inputs], vec![10, rows, outputs]);
        shapes.push(Shape { name, layer: Part::of(&layer), from, to });
    }
    for (inputs, outputs, size) in
        [(64, 128, 48), (128, 256, 24), (256, 512, 12), (512, 512, 6), (512, 64, 4), (16, 32, 24)]
    {
        let name = format!("conv1x1 {inputs}->{outputs} {size}x{size}");
        let config = Conv2dConfig::default().bias(false);
        let layer = Conv2d::new(inputs, outputs, 1, config, vb.pp(&name)).unwrap();
        let shape = |channels| vec![10, 4, channels, size, size];
        shapes.push(Shape { name, layer: Part::of(&layer), from: shape(inputs), to: shape(outputs) });
    }
    shapes
}

/// Milliseconds of the forward, and of the backward to the weight.
fn step(shape: &Shape, x: &Tensor, dy: &Tensor) -> [f64; 2] {
    let mut context = Context::training(&Session::new(0));
    let start = Instant::now();
    let y = shape.layer.forward(x.into(), &mut context).unwrap().into_dense("layer").unwrap();
    let forward = start.elapsed().as_secs_f64() * 1e3;
    let storage = CpuStorage::F32(dy.flatten_all().unwrap().to_vec1().unwrap());
    let (output, dy) = (y.clone(), Gradient::new(storage, dy.shape()));
    let start = Instant::now();
    let gradients = backward_from(vec![(output, dy)]).unwrap();
    let backward = start.elapsed().as_secs_f64() * 1e3;
    drop(black_box((y, gradients)));
    [forward, backward]
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let flags = Flags::parse();
    let mut table = comfy_table::Table::new();
    table.load_style(ASCII_MARKDOWN);
    let columns = ["ms", "ones", "forward", "dense", "ratio", "dw", "dense", "ratio"];
    table.set_header(columns);
    for shape in shapes().iter().filter(|shape| shape.name.contains(&flags.shape)) {
        for &percent in &flags.percent {
            let uniform = Tensor::rand(0f32, 1., shape.from.as_slice(), CPU).unwrap();
            let spikes = uniform.lt(percent as f32 / 100.).unwrap().to_dtype(DType::F32).unwrap();
            let dense = (&spikes * 2.).unwrap();
            let dy = Tensor::randn(0f32, 1., shape.to.as_slice(), CPU).unwrap();
            let mut times = [const { Vec::new() }; 4];
            for run in 0..flags.runs + 2 {
                for (index, x) in [&spikes, &dense].into_iter().enumerate() {
                    let [forward, backward] = step(shape, x, &dy);
                    if run >= 2 {
                        times[index].push(forward);
                        times[2 + index].push(backward);
                    }
                }
            }
            let [event, dense, dw, dw_dense] = times.map(median);
            let show = |ms: f64| format!("{ms:.3}");
            let ratio = |a: f64, b: f64| format!("{:.2}", a / b);
            table.add_row([
                shape.name.clone(),
                format!("{percent}%"),
                show(event),
                show(dense),
                ratio(event, dense),
                show(dw),
                show(dw_dense),
                ratio(dw, dw_dense),
            ]);
        }
    }
    println!("{table}");
}
