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

#[derive(Clone)]
struct Config;

#[derive(Clone, Checkpointable)]
#[spatial_split(layer, config, sizes)]
struct Block {
    layer: Layer,
    config: Config,
    sizes: Vec<usize>,
}

#[derive(Clone, Checkpointable)]
enum Either {
    Layer(Layer),
    Config(Config),
}

fn main() {}
