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

#[derive(Clone, Checkpointable, Parameters)]
#[spatial_split(layer)]
struct Block {
    layer: Layer,
}

fn main() {}
