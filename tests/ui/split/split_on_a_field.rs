use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
struct Block {
    #[spatial_split(conv)]
    conv: Linear,
    norm: Linear,
}

fn main() {}
