use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint]
#[checkpoint()]
#[checkpoint = "segment"]
#[checkpoint("segment")]
#[spatial_split(conv, norm)]
struct Block {
    #[checkpoint]
    conv: Linear,
    #[checkpoint(bit compressor)]
    norm: Linear,
}

fn main() {}
