//! Neurons: parity with SpikingJelly by numbers, exactness over time chunks and recompute, gradients, what does not fit.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod exactness;
mod fitting;
mod gradients;
mod parity;
mod raw;

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use memopt::autograd::backward_from;
use memopt::nn::{If, Lif, Plif, Reset, Surrogate};
use memopt::Result;

const CPU: &Device = &Device::Cpu;
const SURROGATES: [Surrogate; 5] = [
    Surrogate::atan(),
    Surrogate::sigmoid(),
    Surrogate::piecewise_quadratic(),
    Surrogate::rectangular(),
    Surrogate::fast_sigmoid(),
];

/// Any of the neurons with a potential.
#[derive(Debug, Clone)]
enum Neuron {
    Lif(Lif),
    If(If),
    Plif(Plif),
}

/// Options, as the neurons' builders take them.
#[derive(Debug, Clone, Copy)]
struct Options {
    v_threshold: f64,
    reset: Reset,
    detach_reset: bool,
    decay_input: bool,
    surrogate: Surrogate,
    tau: f64,
}

impl Neuron {
    fn new(kind: &str, o: Options, w: Option<&Var>) -> Self {
        macro_rules! options {
            ($neuron:expr) => {
                $neuron
                    .v_threshold(o.v_threshold)
                    .reset(o.reset)
                    .detach_reset(o.detach_reset)
                    .surrogate(o.surrogate)
            };
        }
        match kind {
            "lif" => Neuron::Lif(options!(Lif::new(o.tau).unwrap()).decay_input(o.decay_input)),
            "if" => Neuron::If(options!(If::new())),
            _ => {
                let w = w.unwrap().as_tensor().clone();
                Neuron::Plif(options!(Plif::new(w).unwrap()).decay_input(o.decay_input))
            }
        }
    }

    fn window(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        match self {
            Neuron::Lif(neuron) => neuron.window(x, v),
            Neuron::If(neuron) => neuron.window(x, v),
            Neuron::Plif(neuron) => neuron.window(x, v),
        }
    }

    fn step(&self, x: &Tensor, v: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        match self {
            Neuron::Lif(neuron) => neuron.step(x, v),
            Neuron::If(neuron) => neuron.step(x, v),
            Neuron::Plif(neuron) => neuron.step(x, v),
        }
    }
}

/// `sum(s gs) + sum(v gv)`, backwards.
fn back(s: Tensor, v: Tensor, gs: &Tensor, gv: &Tensor) -> GradStore {
    backward_from(vec![(s, gs.clone().into()), (v, gv.clone().into())]).unwrap()
}

fn variable(t: Tensor) -> Var {
    Var::from_tensor(&t).unwrap()
}
