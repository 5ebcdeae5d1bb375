use memopt::Parameters;

#[derive(Clone, Parameters)]
struct Net {
    #[checkpoint(skip, skip)]
    depth: usize,
    #[checkpoint(skip)]
    #[checkpoint(skip)]
    width: usize,
}

fn main() {}
