use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(cnv, norm)]
struct Misspelt {
    conv: Linear,
    norm: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, attention)]
struct Another {
    conv: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(0, 2)]
struct Tuple(Linear, #[checkpoint(skip)] usize);

fn main() {}
