use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv)]
struct Block {
    conv: Linear,
    norm: Linear,
    size: usize,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(0)]
struct Tuple(Linear, Vec<Linear>);

fn main() {}
