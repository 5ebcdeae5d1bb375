use candle_nn::Linear;
use memopt::Parameters;

#[derive(Clone, Parameters)]
#[checkpoint(skip)]
struct Net {
    linear: Linear,
}

#[derive(Clone, Parameters)]
#[checkpoint]
enum Layer {
    Linear(Linear),
}

fn main() {}
