use memopt::module::{Context, Signal};
use memopt::prelude::*;

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct Layer;

impl Layer {
    fn run(&self, x: Signal, _: &mut Context) -> memopt::Result<Signal> {
        Ok(x)
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run", time_chunks)]
struct Stepwise;

impl Stepwise {
    fn run(&self, x: Signal, _: &mut Context) -> memopt::Result<Signal> {
        Ok(x)
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(stepwise, layer, list)]
struct Block {
    stepwise: Stepwise,
    layer: Layer,
    list: Vec<Layer>,
}

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
enum Either {
    Stepwise(Stepwise),
    Layer(Layer),
}

fn main() {}
