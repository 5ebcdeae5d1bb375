use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(linaer)]
struct Block<M> {
    linear: M,
}

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(block)]
struct Net {
    block: Block<Linear>,
}

fn holds<M: memopt::Parameters + Checkpointable + candle_nn::ModuleT>() {}

fn main() {
    holds::<Net>();
}
