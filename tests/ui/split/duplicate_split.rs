use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv)]
#[spatial_split(norm)]
struct Block {
    conv: Linear,
    #[checkpoint(skip)]
    norm: Linear,
}

fn main() {}
