use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
enum Layer {
    Linear(#[checkpoint(compressor = "bit")] Linear),
}

fn main() {}
