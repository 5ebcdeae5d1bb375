use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(segmnt, forward = 1)]
#[spatial_split(conv, join(sum; norm, nurm), conv)]
struct Block {
    #[checkpoint(compressor = "bits")]
    conv: Linear,
    norm: Linear,
    #[checkpoint(compressor = "bit", skip)]
    size: usize,
    out: Linear,
}

fn main() {}
