use candle_nn::Linear;
use memopt::Parameters;

#[derive(Clone, Parameters)]
enum Layer {
    Linear(Linear),
    #[checkpoint(skip)]
    Size(usize),
}

fn main() {}
