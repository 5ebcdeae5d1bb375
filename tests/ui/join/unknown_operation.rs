use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(join(ad; main, shortcut))]
struct Misspelt {
    main: Linear,
    shortcut: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(attend; query, key))]
struct Attention {
    query: Linear,
    key: Linear,
}

fn main() {}
