//! Structs that a macro writes: fragments come as invisible groups, names with the macro's own hygiene.

use memopt::module::{Context, Signal};
use memopt::prelude::*;
use memopt::Checkpointable;

macro_rules! opaque {
    ($name:ident, $method:literal) => {
        #[derive(Clone, Checkpointable)]
        #[checkpoint(forward = $method)]
        struct $name;
    };
    ($name:ident) => {
        #[derive(Clone, Checkpointable)]
        #[checkpoint(forward = "run")]
        struct $name;

        impl $name {
            fn run(&self, x: Signal, _: &mut Context) -> memopt::Result<Signal> {
                Ok(x)
            }
        }
    };
}

opaque!(Given, "walk");
opaque!(Own);

impl Given {
    fn walk(&self, x: Signal, _: &mut Context) -> memopt::Result<Signal> {
        Ok(x)
    }
}

macro_rules! model {
    ($name:ident<$parameter:ident>: join($op:ident; $first:tt, $second:ident), self.$method:ident, $compressor:literal; $($field:ident: $ty:ty,)*) => {
        #[derive(Clone, Checkpointable)]
        #[spatial_split(join($op; $first, $second), join(self.$method; own, more))]
        struct $name<$parameter> {
            $(#[checkpoint(compressor = $compressor)] $field: $ty,)*
            own: Vec<$parameter>,
            more: Own,
        }
    };
}

model! {
    Net<M>: join(add; (layer, list), other), self.mix, "bit";
    layer: M,
    list: Vec<(M, Given)>,
    other: Option<M>,
}

impl<M> Net<M> {
    fn mix(&self, branches: &[Signal], _: &mut Context) -> memopt::Result<Signal> {
        Ok(branches[0].clone())
    }
}

macro_rules! tuple {
    ($name:ident, $($index:tt $ty:ty),*; $skip:ident) => {
        #[derive(Clone, Checkpointable)]
        #[spatial_split($($index),*)]
        struct $name($($ty,)* #[checkpoint($skip)] usize);
    };
}

tuple!(Pair, 0 Own, 1 Option<Given>; skip);

macro_rules! layers {
    ($name:ident { $($variant:ident $ty:ty),* }) => {
        #[derive(Clone, Checkpointable)]
        enum $name {
            $($variant($ty),)*
        }
    };
}

layers!(Layer { Net Net<Own>, Pair Pair });

fn holds<M: Checkpointable>() {}

fn main() {
    holds::<Layer>();
    let _ = |layer: Layer| matches!(layer, Layer::Net(_) | Layer::Pair(_));
}
