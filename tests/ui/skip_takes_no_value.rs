use memopt::Parameters;

#[derive(Clone, Parameters)]
struct Net {
    #[checkpoint(skip = true)]
    depth: usize,
    #[checkpoint(skip(always))]
    width: usize,
}

fn main() {}
