use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, norm, out)]
struct Block {
    #[checkpoint(compresor = "bit")]
    conv: Linear,
    #[checkpoint(frozen)]
    norm: Linear,
    #[checkpoint(segment, forward = "run")]
    out: Linear,
}

fn main() {}
