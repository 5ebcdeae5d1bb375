use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split]
struct Missing {
    conv: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split()]
struct Empty {
    conv: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split = "conv"]
struct Value {
    conv: Linear,
}

fn main() {}
