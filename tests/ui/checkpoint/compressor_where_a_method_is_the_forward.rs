use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct Block {
    #[checkpoint(compressor = "bit")]
    conv: Linear,
}

fn main() {}
