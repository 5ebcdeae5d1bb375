use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(0, 1, 2)]
struct Block(
    #[checkpoint(compressor = "bits")] Linear,
    #[checkpoint(compressor = "zip")] Linear,
    #[checkpoint(compressor = "8 bit")] Linear,
);

fn main() {}
