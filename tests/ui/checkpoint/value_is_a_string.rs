use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(0, 1, 2, 3)]
struct Fields(
    #[checkpoint(compressor = 3)] Linear,
    #[checkpoint(compressor = bit)] Linear,
    #[checkpoint(compressor)] Linear,
    #[checkpoint(compressor("bit"))] Linear,
);

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = 1)]
struct Number(Linear);

#[derive(Clone, Checkpointable)]
#[checkpoint(forward)]
struct Word(Linear);

fn main() {}
