use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
enum Layer {
    #[checkpoint(segment)]
    Linear(Linear),
}

fn main() {}
