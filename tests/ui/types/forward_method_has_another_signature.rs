use memopt::module::Signal;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "walk")]
struct Walk;

impl Walk {
    fn walk(&self, x: Signal) -> memopt::Result<Signal> {
        Ok(x)
    }
}

fn main() {}
