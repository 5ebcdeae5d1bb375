use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split((first, second), third.inner, fourth fifth,, sixth)]
struct Chain {
    first: Linear,
    second: Linear,
    third: Linear,
    fourth: Linear,
    fifth: Linear,
    sixth: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(jion(add; first, second), "third")]
struct Residual {
    first: Linear,
    second: Linear,
    #[checkpoint(skip)]
    third: Linear,
}

fn main() {}
