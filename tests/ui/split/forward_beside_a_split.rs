use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv)]
#[checkpoint(segment, forward = "run")]
struct Block {
    conv: Linear,
}

fn main() {}
