use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(join(self.ops.mix; main, join(self; first, second)))]
struct Block {
    main: Linear,
    first: Linear,
    second: Linear,
}

fn main() {}
