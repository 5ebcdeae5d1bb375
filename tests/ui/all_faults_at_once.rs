use candle_nn::Linear;
use memopt::prelude::*;

#[derive(Clone, Parameters)]
#[checkpoint(skip)]
struct Net<M> {
    layer: M,
    #[checkpoint(skp)]
    depth: usize,
    #[checkpoint(skip = true)]
    #[checkpoint]
    width: usize,
}

fn needs_parameters<M: Parameters>(_: M) {}

fn main() {
    // `Net` counts as `Parameters` all the same: no second error here.
    let _ = |net: Net<Linear>| needs_parameters(net);
}
