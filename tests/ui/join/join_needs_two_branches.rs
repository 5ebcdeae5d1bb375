use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(join(add; (conv, norm)), join(self.mix; out), join(mul;))]
struct Block {
    conv: Linear,
    norm: Linear,
    out: Linear,
}

fn main() {}
