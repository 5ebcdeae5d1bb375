//! Counted bytes of a training step of the CIFAR10-DVS VGG. One test, since the counters are the process's.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::VarMap;
use common::Values;
use memopt::checkpoint::Planned;
use memopt::memory::{live, CountingAllocator, Scope};
use memopt::models::CifarDvsVgg;
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::plan::{Compressor, Keep, Plan};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CPU: &Device = &Device::Cpu;
const SIDE: usize = 48;
const BATCH: usize = 1;
const STEPS: usize = 4;

/// Inputs of all blocks as bits; the first, which is counts, as it is.
fn gc_bit() -> Plan {
    let all = (1..8)
        .fold(Plan::new(), |plan, i| plan.with(format!("features.{i}"), (Keep::Recompute, Compressor::Bit)));
    all.with("features.0", (Keep::Recompute, Compressor::Null))
}

/// Event counts `[N, T, 2, 48, 48]`, few of them not 0.
fn events() -> Tensor {
    let shape = [BATCH, STEPS, 2, SIDE, SIDE];
    let [a, b] = [1, 2].map(|seed| Values::new(seed).spikes(&shape, 0.15, DType::F32).unwrap());
    (a + b).unwrap()
}

struct Step {
    /// After the forward.
    held: usize,
    /// Of forward, backward and descent.
    peak: usize,
    /// Of all gradients.
    gradients: usize,
}

fn step(plan: Plan, x: &Tensor) -> Step {
    let variables = VarMap::new();
    let net = CifarDvsVgg::new(SIDE, seeded(&variables, 0, DType::F32, CPU)).unwrap();
    let net = Planned::new(net, plan, Session::new(0)).unwrap();
    let variables: Vec<Var> = variables.all_vars();
    let labels = Tensor::zeros(BATCH, DType::U32, CPU).unwrap();

    let before = live().unwrap();
    let scope = Scope::enter("step").unwrap();
    let y = net.run(x, true).unwrap().into_dense("logits").unwrap();
    let loss = candle_nn::loss::cross_entropy(&y.mean(0).unwrap(), &labels).unwrap();
    drop(y);
    let held = live().unwrap() - before;
    let store = loss.backward().unwrap();
    let mut gradients = 0;
    for variable in &variables {
        if let Some(gradient) = store.get(variable) {
            gradients += gradient.elem_count() * 4;
            let moved = variable.as_detached_tensor() - (gradient * 1e-3).unwrap();
            variable.set(&moved.unwrap().detach()).unwrap();
        }
    }
    drop((loss, store));
    Step { held, peak: scope.finish().peak_above_start(), gradients }
}

/// The share of what 4 samples of 10 steps may take: 400 MB, of which gradients do not depend on the batch.
fn share_of_400_megabytes(gradients: usize) -> usize {
    gradients + (400_000_000 - gradients) * BATCH * STEPS / 40
}

#[test]
fn a_vgg_in_segments_holds_a_twentieth_after_forward_and_stays_below_its_peak() {
    let x = events();
    let (plain, ours) = (step(Plan::new(), &x), step(gc_bit(), &x));
    println!("held {} of {}, peak {} of {}", ours.held, plain.held, ours.peak, plain.peak);
    assert!(ours.held * 20 < plain.held, "{} of {} held", ours.held, plain.held);
    let share = share_of_400_megabytes(ours.gradients);
    assert!(ours.gradients > 36_000_000 && ours.peak < share, "{} of {share}", ours.peak);
    assert!(plain.peak > share, "the bound shows nothing: {} of {share}", plain.peak);
}
