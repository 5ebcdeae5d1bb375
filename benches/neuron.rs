//! Neurons and batch norm, forward and backward, beside copying the same tensor: `cargo bench --bench neuron`.
//!
//! The runs of all operations are interleaved and the medians of each reported, as in `benches/compress.rs`. With
//! `--peer FILE`, lines of JSON with `name` and `ms`, ratios to another implementation's times are printed; since machines
//! drift, take both in the same minutes.
#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{CpuStorage, DType, Device, Storage, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use clap::Parser;
use comfy_table::presets::ASCII_MARKDOWN;
use memopt::autograd::{apply, backward_from, Edge, Gradient, Output};
use memopt::module::{Checkpointable, Context, Session};
use memopt::nn::{BatchNorm, BatchNormConfig, If, Lif, Plif, Surrogate};
use std::collections::HashMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

/// Milliseconds, medians of interleaved runs.
#[derive(Parser)]
struct Flags {
    /// Interleaved runs, after two that do not count.
    #[arg(long, default_value_t = 15)]
    runs: usize,
    /// Only operations whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Lines `{"name": ..., "ms": ...}` of another implementation.
    #[arg(long)]
    peer: Option<PathBuf>,
    /// cargo passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

struct Operation {
    name: String,
    /// What the peer calls it.
    peer: &'static str,
    bytes: usize,
    /// Gives the seconds that it took.
    run: Box<dyn FnMut() -> f64>,
}

fn main() {
    let flags = Flags::parse();
    let peer = flags.peer.as_ref().map(peer_times).unwrap_or_default();
    let mut operations: Vec<Operation> =
        operations().into_iter().filter(|operation| operation.name.contains(&flags.only)).collect();
    let mut times = vec![Vec::new(); operations.len()];
    for run in 0..flags.runs + 2 {
        for (operation, times) in operations.iter_mut().zip(&mut times) {
            let time = (operation.run)();
            if run >= 2 {
                times.push(time);
            }
        }
    }
    let mut table = comfy_table::Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["operation", "ms", "fastest ms", "MB", "peer ms", "peer / ours"]);
    for (operation, mut times) in operations.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2] * 1e3;
        let peer = peer.get(operation.peer);
        table.add_row([
            operation.name,
            format!("{median:.2}"),
            format!("{:.2}", times[0] * 1e3),
            format!("{:.0}", operation.bytes as f64 / 1e6),
            peer.map_or(String::new(), |ms| format!("{ms:.2}")),
            peer.map_or(String::new(), |ms| format!("{:.2}", ms / median)),
        ]);
    }
    println!("{table}");
}

fn operations() -> Vec<Operation> {
    let (small, large): (&'static [usize], &'static [usize]) = (&[10, 4, 64, 48, 48], &[10, 4, 128, 48, 48]);
    let lif = || Lif::new(1.333).unwrap().decay_input(false).detach_reset(true).surrogate(Surrogate::atan());
    let integrate = If::new().detach_reset(true).surrogate(Surrogate::atan());
    let w = Var::new(Plif::w_of(1.333).unwrap() as f32, &Device::Cpu).unwrap();
    let parametric = Plif::new(w.as_tensor().clone()).unwrap();
    let parametric = parametric.decay_input(false).detach_reset(true).surrogate(Surrogate::atan());
    let norm = || {
        let vb = VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu);
        BatchNorm::new(128, BatchNormConfig::default(), vb).unwrap()
    };
    vec![
        copy(small),
        there_and_back("lif", "lif forward+backward [10,4,64,48,48]", small, lif()),
        there_and_back("if", "", small, integrate),
        there_and_back("plif", "", small, parametric),
        there_and_back("lif, sigmoid", "", small, lif().surrogate(Surrogate::sigmoid())),
        copy(large),
        there_and_back("batch norm", "bn forward+backward [40,128,48,48]", large, norm()),
        there_and_back(
            "batch norm, lif",
            "bn+lif forward+backward [10,4,128,48,48]",
            large,
            vec![Layer::Norm(norm()), Layer::Lif(lif())],
        ),
    ]
}

/// A chain needs one type.
#[derive(Clone, memopt::Checkpointable)]
enum Layer {
    Norm(BatchNorm),
    Lif(Lif),
}

fn copy(shape: &[usize]) -> Operation {
    let x = values(shape, 1);
    let bytes = x.elem_count() * 4;
    let run = Box::new(move || {
        let start = Instant::now();
        black_box(x.copy().unwrap());
        start.elapsed().as_secs_f64()
    });
    Operation { name: format!("copy {shape:?}"), peer: "", bytes, run }
}

/// Forward and backward of a layer in training, as inside of a network: its input is tracked, but no variable (whose
/// gradients Candle would add up), and the gradient of its output is in a buffer that nobody else has.
fn there_and_back(
    name: &str,
    peer: &'static str,
    shape: &'static [usize],
    layer: impl Checkpointable,
) -> Operation {
    let source = Var::new(0f32, &Device::Cpu).unwrap();
    let (x, dy) = (values(shape, 1), values(shape, 2));
    let session = Session::new(0);
    let run = Box::new(move || {
        session.reset_states();
        let output = Output::copy_of(&x).unwrap();
        let outputs = apply("source", vec![Edge::to(&source)], vec![output], |gradients| {
            black_box(gradients);
            Ok(vec![None])
        });
        let x = outputs.unwrap().remove(0);
        let dy = Gradient::new(storage_of(&dy), shape);

        let start = Instant::now();
        let mut context = Context::training(&session);
        let y = layer.forward(x.into(), &mut context).unwrap().into_dense("model").unwrap();
        backward_from(vec![(y, dy)]).unwrap();
        start.elapsed().as_secs_f64()
    });
    let bytes = shape.iter().product::<usize>() * 4;
    Operation { name: format!("{name} {shape:?}"), peer, bytes, run }
}

fn storage_of(tensor: &Tensor) -> CpuStorage {
    match &*tensor.storage_and_layout().0 {
        Storage::Cpu(storage) => storage.clone(),
        _ => unreachable!(),
    }
}

/// About normal, deterministic.
fn values(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / (1u32 << 24) as f32 - 0.5
    };
    let n = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|_| 2. * (uniform() + uniform() + uniform())).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn peer_times(path: &PathBuf) -> HashMap<String, f64> {
    let lines = std::fs::read_to_string(path).unwrap();
    let lines = lines.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (line["name"].as_str().unwrap().to_owned(), line["ms"].as_f64().unwrap())
        })
        .collect()
}
