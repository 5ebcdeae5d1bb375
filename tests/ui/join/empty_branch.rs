use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(join(add; conv, ()))]
struct Block {
    conv: Linear,
}

fn main() {}
