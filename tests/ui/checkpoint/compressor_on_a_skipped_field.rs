use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv)]
struct Block {
    conv: Linear,
    #[checkpoint(skip, compressor = "bit")]
    size: usize,
}

fn main() {}
