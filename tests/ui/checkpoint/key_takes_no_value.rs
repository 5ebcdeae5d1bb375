use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(segment = true, time_chunks(4))]
#[spatial_split(conv)]
struct Block {
    conv: Linear,
    #[checkpoint(skip = true)]
    size: usize,
}

fn main() {}
