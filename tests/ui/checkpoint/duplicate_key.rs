use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(segment, segment)]
#[checkpoint(time_chunks)]
#[checkpoint(time_chunks)]
#[spatial_split(conv)]
struct Block {
    #[checkpoint(compressor = "bit", compressor = "byte")]
    conv: Linear,
    #[checkpoint(skip, skip)]
    size: usize,
}

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run", forward = "walk")]
struct Opaque(Linear);

fn main() {}
