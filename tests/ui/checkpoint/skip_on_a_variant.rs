use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
enum Layer {
    Linear(Linear),
    Size(#[checkpoint(skip)] usize),
}

fn main() {}
