//! What the macro writes gives no warning in a strict crate.

#![deny(warnings, unused, deprecated, unused_qualifications, unused_results, unreachable_pub, missing_docs)]
#![deny(elided_lifetimes_in_paths, single_use_lifetimes, trivial_casts, trivial_bounds, unsafe_code)]
#![deny(private_bounds)]

use memopt::module::{Context, Signal};
use memopt::Checkpointable;

/// Changes nothing.
#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run", time_chunks)]
pub struct Identity;

impl Identity {
    fn run(&self, x: Signal, _: &mut Context) -> memopt::Result<Signal> {
        Ok(x)
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(0)]
struct Private<M>(M);

/// A model of a private part.
#[derive(Clone, Checkpointable)]
#[checkpoint(segment, time_chunks)]
#[spatial_split(private, join(self.mix; left, (join(add; right, other))))]
pub struct Net<'a, M> {
    private: Private<M>,
    left: Identity,
    #[checkpoint(compressor = "bit")]
    right: Identity,
    other: Option<M>,
    #[checkpoint(skip)]
    name: &'a str,
}

impl<M> Net<'_, M> {
    fn mix(&self, branches: &[Signal], _: &mut Context) -> memopt::Result<Signal> {
        Ok(branches[0].clone())
    }
}

/// Either of two.
#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
pub enum Either {
    /// A layer.
    Identity(Identity),
    /// Layers.
    List(Vec<Identity>),
}

#[allow(deprecated, unreachable_pub)]
mod old {
    use super::{Checkpointable, Identity};

    #[deprecated]
    #[derive(Clone, Checkpointable)]
    #[checkpoint(time_chunks)]
    #[spatial_split(0)]
    pub struct Old(Identity);
}

/// A field of a deprecated type.
#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(old)]
pub struct Holds {
    #[allow(deprecated)]
    old: old::Old,
}

fn main() {
    let _ = |net: &Net<'_, Identity>, holds: &Holds| {
        let _ = (&net.private.0, &net.left, &net.right, &net.other, &holds.old);
        net.name.len()
    };
}
