use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, norm, conv)]
struct Block {
    conv: Linear,
    norm: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(add; (0, 1), 0))]
struct Tuple(Linear, Linear);

fn main() {}
