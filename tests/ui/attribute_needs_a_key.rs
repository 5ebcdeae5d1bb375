use memopt::Parameters;

#[derive(Clone, Parameters)]
struct Net {
    #[checkpoint]
    depth: usize,
    #[checkpoint()]
    width: usize,
}

fn main() {}
