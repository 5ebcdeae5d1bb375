use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "walk")]
struct Missing;

fn main() {}
