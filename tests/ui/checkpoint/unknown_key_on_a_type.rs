use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(segmnt)]
#[spatial_split(conv)]
struct Misspelt {
    conv: Linear,
}

#[derive(Clone, Checkpointable)]
#[checkpoint(frozen, skip, compressor = "bit")]
enum Layer {
    Linear(Linear),
}

fn main() {}
