//! Counted bytes of the backward of a block in time chunks. One test, since the counters are the process's.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{CpuStorage, DType, Device};
use candle_nn::VarMap;
use common::Values;
use memopt::autograd::{backward_from, Gradient};
use memopt::checkpoint::Planned;
use memopt::memory::{CountingAllocator, Scope};
use memopt::models::VggBlock;
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::plan::{Compressor, Keep, Plan};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CHANNELS: usize = 64;
const SIDE: usize = 48;
/// Bytes of a time step of the block's output.
const STEP: usize = 4 * CHANNELS * SIDE * SIDE;

/// Peak of the backward of a block over so many time steps, above what is alive when it begins: its input in bits, and its
/// output and the gradient of that, each as large as the window.
fn beyond_the_gradient(keep: Keep, steps: usize) -> usize {
    let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
    let block = VggBlock::new(CHANNELS, CHANNELS, false, 1., vb).unwrap();
    let plan = Plan::new().with("0", (keep, Compressor::Bit));
    let net = Planned::new(vec![block], plan, Session::new(0)).unwrap();
    let shape = [steps, 1, CHANNELS, SIDE, SIDE];
    let x = Values::new(1).spikes(&shape, 0.15, DType::F32).unwrap();
    let y = net.run(&x, true).unwrap().into_dense("spikes").unwrap();
    drop(x);
    let gradient = Gradient::new(CpuStorage::F32(vec![1e-3; y.elem_count()]), y.shape());
    let scope = Scope::enter("backward").unwrap();
    let store = backward_from(vec![(y.clone(), gradient)]).unwrap();
    drop(store);
    let peak = scope.finish().peak_above_start();
    drop(y);
    peak
}

#[test]
fn the_peak_of_time_chunks_grows_less_than_the_window() {
    let measure = |keep: fn(usize) -> Keep| [5, 10, 20].map(|steps| beyond_the_gradient(keep(steps), steps));
    let whole = measure(|_| Keep::Recompute);
    let chunks = measure(Keep::TimeChunks);
    println!("whole {whole:?}, chunks of one step {chunks:?}, a step {STEP}");
    // In few steps the recompute as a whole, which works on bits, takes no more than a chunk that is unpacked.
    assert!(chunks[2] <= whole[2], "{} of {} in 20 steps", chunks[2], whole[2]);
    // Weights and buffers of the convolution are the same for all; what grows is as the square root of the time steps.
    let grown = |peaks: [usize; 3]| peaks[2].saturating_sub(peaks[0]);
    assert!(grown(whole) > 14 * STEP, "the bound shows nothing: {} of {STEP} a step", grown(whole));
    assert!(grown(chunks) < 5 * STEP, "{} of {STEP} a step", grown(chunks));
}
