use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "self.run")]
struct NoName(Linear);

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "forward")]
struct Itself(Linear);

fn main() {}
