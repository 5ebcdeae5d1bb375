//! Structs that a macro writes: fragments come as invisible groups, names with the macro's own hygiene.

use candle_nn::Linear;
use memopt::prelude::*;

macro_rules! model {
    ($(#[$meta:meta])* $visibility:vis $name:ident<$parameter:ident> { $($(#[$on_field:meta])* $field:ident: $ty:ty,)* }) => {
        #[derive(Clone, Parameters)]
        $(#[$meta])*
        $visibility struct $name<$parameter> {
            $($(#[$on_field])* $field: $ty,)*
            own: Vec<$parameter>,
            #[checkpoint(skip)]
            own_size: usize,
        }
    };
}

model! {
    /// A model.
    pub(crate) Net<M> {
        layer: M,
        list: Vec<(M, Linear)>,
        #[checkpoint(skip)]
        name: &'static str,
    }
}

macro_rules! tuple {
    ($name:ident, $($ty:ty),*; $skip:ident) => {
        #[derive(Clone, Parameters)]
        struct $name($($ty,)* #[checkpoint($skip)] usize);
    };
}

tuple!(Pair, Linear, Option<Linear>; skip);

macro_rules! layers {
    ($name:ident { $($variant:ident $ty:ty),* }) => {
        #[derive(Clone, Parameters)]
        enum $name {
            $($variant($ty),)*
        }
    };
}

layers!(Layer { Net Net<Linear>, Pair Pair });

fn holds<M: Parameters>() {}

fn main() {
    holds::<Layer>();
    let _ = |net: Net<Linear>| (net.layer, net.list, net.name, net.own, net.own_size);
    let _ = |layer: Layer| matches!(layer, Layer::Net(_) | Layer::Pair(_));
}
