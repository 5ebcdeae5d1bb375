use memopt::Parameters;

#[derive(Clone, Parameters)]
struct Net {
    #[checkpoint = "skip"]
    depth: usize,
    #[checkpoint("skip")]
    width: usize,
    #[checkpoint(skip skip)]
    steps: usize,
}

fn main() {}
