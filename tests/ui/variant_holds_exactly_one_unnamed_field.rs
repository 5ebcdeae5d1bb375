use candle_nn::Linear;
use memopt::Parameters;

#[derive(Clone, Parameters)]
enum Layer {
    Linear(Linear),
    Identity,
    Nothing(),
    Pair(Linear, Linear),
    Named { linear: Linear },
}

fn main() {}
