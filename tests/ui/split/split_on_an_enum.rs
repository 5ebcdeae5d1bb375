use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(0)]
enum Layer {
    #[spatial_split(0)]
    Linear(Linear),
}

fn main() {}
