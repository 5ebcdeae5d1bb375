use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
enum Layer {
    Linear(Linear),
    Identity,
    Pair(Linear, Linear),
    Named { linear: Linear },
}

fn main() {}
