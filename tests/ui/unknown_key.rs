use candle_nn::Linear;
use memopt::Parameters;

#[derive(Clone, Parameters)]
struct Net {
    linear: Linear,
    #[checkpoint(skp)]
    depth: Linear,
    #[checkpoint(frozen = true)]
    width: Linear,
}

fn main() {}
