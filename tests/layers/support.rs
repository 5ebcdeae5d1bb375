//! Runs a layer forward and back.

use candle_core::{Device, Tensor, Var};
use memopt::autograd::backward_from;
use memopt::module::{Checkpointable, Context, Session};
use memopt::parameters::parameters;
use memopt::Result;

pub const CPU: &Device = &Device::Cpu;

pub fn training() -> Context {
    Context::training(&Session::new(0))
}

pub fn evaluation() -> Context {
    Context::evaluation(&Session::new(0))
}

pub fn variable(tensor: &Tensor) -> Tensor {
    Var::from_tensor(&tensor.copy().unwrap()).unwrap().into_inner()
}

pub fn forward(layer: &impl Checkpointable, x: &Tensor, context: &mut Context) -> Result<Tensor> {
    layer.forward(x.into(), context)?.into_dense("layer")
}

/// Output, gradient of the input, gradients of the parameters in their order.
pub struct Run {
    pub y: Tensor,
    pub dx: Tensor,
    pub parameters: Vec<Tensor>,
}

/// Forward with `x` and back from the output's gradient.
pub fn run(
    layer: &impl Checkpointable,
    x: &Tensor,
    dy: impl FnOnce(&Tensor) -> Tensor,
    context: &mut Context,
) -> Run {
    let x = variable(x);
    let y = forward(layer, &x, context).unwrap();
    let dy = dy(&y);
    let store = backward_from(vec![(y.clone(), dy.into())]).unwrap();
    let gradient = |t: &Tensor| store.get(t).unwrap().clone();
    let parameters = parameters(layer).iter().map(|(_, parameter)| gradient(parameter)).collect();
    Run { y: y.detach(), dx: gradient(&x), parameters }
}
