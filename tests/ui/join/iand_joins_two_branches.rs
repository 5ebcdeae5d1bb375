use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(join(iand; first, second, (third, fourth)))]
struct Block {
    first: Linear,
    second: Linear,
    third: Linear,
    fourth: Linear,
}

fn main() {}
