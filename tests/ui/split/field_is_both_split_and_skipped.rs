use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, norm)]
struct Block {
    conv: Linear,
    #[checkpoint(skip)]
    norm: Linear,
}

fn main() {}
