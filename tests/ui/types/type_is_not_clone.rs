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

#[derive(Checkpointable)]
#[spatial_split(join(self.mix; first, second))]
struct Block {
    first: Layer,
    second: Layer,
}

impl Block {
    fn mix(&self, branches: &[Signal], _: &mut Context) -> memopt::Result<Signal> {
        Ok(branches[0].clone())
    }
}

fn main() {}
