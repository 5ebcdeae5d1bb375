use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
struct Block {
    conv: Linear,
    norm: Linear,
    #[checkpoint(skip)]
    size: usize,
}

#[derive(Clone, Checkpointable)]
struct Identity;

fn main() {}
