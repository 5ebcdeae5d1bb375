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

#[derive(Default)]
struct Zip;

#[derive(Clone, Checkpointable)]
#[spatial_split(first, second)]
struct Block {
    #[checkpoint(compressor = "Zip")]
    first: Layer,
    #[checkpoint(compressor = "my::Missing")]
    second: Layer,
}

mod my {}

fn main() {}
