//! What `#[derive(Parameters)]` is given: a model of plain structs.
//!
//! `parameters_expanded.rs` beside it is the same model with what the macro writes. A test of the macro compares the
//! two.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::Linear;
use memopt::prelude::*;

/// A list of layers, whatever they are, and a classifier.
#[derive(Clone, Parameters)]
struct Net<M> {
    layers: Vec<M>,
    classifier: Linear,
    #[checkpoint(skip)]
    steps: usize,
}

/// One of two kinds of layer.
#[derive(Clone, Parameters)]
enum Layer {
    Dense(Linear),
    Gain(Gain),
    Steps(#[checkpoint(skip)] usize),
}

/// A trained factor and its name.
#[derive(Clone, Parameters)]
struct Gain(Tensor, #[checkpoint(skip)] &'static str);

fn main() -> Result<()> {
    let weight = Var::zeros((2, 2), DType::F32, &Device::Cpu)?;
    let dense = Linear::new(weight.as_tensor().clone(), None);
    let gain = Gain(Var::ones(2, DType::F32, &Device::Cpu)?.into_inner(), "gain");
    let layers = vec![Layer::Dense(dense.clone()), Layer::Gain(gain), Layer::Steps(3)];
    let net = Net { layers, classifier: dense, steps: 4 };

    let twin = net.detached();
    println!("{} layers, {} steps", twin.layers.len(), twin.steps);
    for (path, tensor) in memopt::parameters::parameters(&net) {
        println!("{path} {:?}", tensor.dims());
    }
    Ok(())
}
