use memopt::Parameters;

#[derive(Parameters)]
union Either {
    integer: u32,
    float: f32,
}

fn main() {}
