use candle_nn::Linear;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(join(main, shortcut))]
struct Missing {
    main: Linear,
    shortcut: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(; main, shortcut))]
struct Nothing {
    main: Linear,
    shortcut: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(), main)]
struct Empty {
    main: Linear,
}

fn main() {}
