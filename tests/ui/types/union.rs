use memopt::Checkpointable;

#[derive(Clone, Copy, Checkpointable)]
union Either {
    left: u32,
    right: f32,
}

fn main() {}
