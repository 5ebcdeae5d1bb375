use candle_nn::Linear;
use memopt::Parameters;

#[derive(Parameters)]
struct Net {
    linear: Linear,
}

fn main() {}
