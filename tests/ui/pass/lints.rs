//! What the macro writes gives no warning in a strict crate.

#![deny(warnings, unused, deprecated, unused_qualifications, unused_results, unreachable_pub, missing_docs)]
#![deny(elided_lifetimes_in_paths, single_use_lifetimes, trivial_casts, unsafe_code, private_bounds)]
#![deny(clippy::all, clippy::pedantic, clippy::nursery)]

use candle_nn::Linear;
use memopt::Parameters;

#[derive(Clone, Parameters)]
struct Private<M>(M);

/// A model of a private part.
#[derive(Clone, Parameters)]
pub struct Net<'a, M> {
    private: Private<M>,
    #[checkpoint(skip)]
    name: &'a str,
}

/// A model of nothing.
#[derive(Clone, Parameters)]
pub struct Unit;

/// Either of two.
#[derive(Clone, Parameters)]
pub enum Either {
    /// A layer.
    Linear(Linear),
    /// A size.
    Size(#[checkpoint(skip)] usize),
}

#[allow(deprecated, unreachable_pub)]
mod old {
    use super::{Linear, Parameters};

    #[deprecated]
    #[derive(Clone, Parameters)]
    pub struct Old(Linear);
}

/// A model of models of its own kind.
#[derive(Clone, Parameters)]
pub struct Tree<M> {
    node: M,
    children: Vec<Self>,
}

/// A field of a deprecated type.
#[derive(Clone, Parameters)]
pub struct Holds {
    #[allow(deprecated)]
    old: old::Old,
}

fn main() {
    let _ = |net: &Net<'_, Linear>, tree: &Tree<Linear>, holds: &Holds| {
        let name = net.name;
        let _ = (&net.private.0, &tree.node, &tree.children, &holds.old);
        name.len()
    };
}
