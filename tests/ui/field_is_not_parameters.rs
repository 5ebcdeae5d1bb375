use candle_nn::Linear;
use memopt::Parameters;

#[derive(Clone)]
struct Config;

#[derive(Clone, Parameters)]
struct Net {
    linear: Linear,
    config: Config,
    sizes: Vec<usize>,
}

#[derive(Clone, Parameters)]
enum Layer {
    Config(Config),
}

fn main() {}
