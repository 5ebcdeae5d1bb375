//! Lists, tuples, options and boxes of modules are modules: one item after the other.

use super::channels::ChannelLayer;
use super::checkpointable::Checkpointable;
use super::composition::Composition;
use super::context::Context;
use super::footprint::{Footprint, Incoming};
use super::linear_map::LinearMap;
use super::part::Part;
use super::signal::Signal;
use super::window_neuron::WindowNeuron;
use super::window_norm::WindowNorm;
use crate::Result;
use std::any::TypeId;
use std::ops::Range;

/// Items one after the other, named by their index.
fn chain<'a, M: Checkpointable>(items: impl IntoIterator<Item = &'a M>) -> Composition {
    let numbered = items.into_iter().enumerate();
    numbered.fold(Composition::new(), |chain, (index, item)| chain.part(index.to_string(), item))
}

impl<M: Checkpointable> Checkpointable for Vec<M> {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        chain(self).run(x, context)
    }

    fn composition(&self) -> Option<Composition> {
        Some(chain(self))
    }
}

impl<M: Checkpointable, const N: usize> Checkpointable for [M; N] {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        chain(self).run(x, context)
    }

    fn composition(&self) -> Option<Composition> {
        Some(chain(self))
    }
}

/// `None` is the identity.
impl<M: Checkpointable> Checkpointable for Option<M> {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        match self {
            Some(module) => module.forward(x, context),
            None => Ok(x),
        }
    }

    fn composition(&self) -> Option<Composition> {
        match self {
            Some(module) => module.composition(),
            None => Some(Composition::new()),
        }
    }

    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        self.as_ref().map_or(Ok(None), |module| module.for_channels(channels))
    }

    fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        self.as_ref().and_then(M::channel_layer)
    }

    fn window_norm(&self) -> Option<&dyn WindowNorm> {
        self.as_ref().and_then(M::window_norm)
    }

    fn linear_map(&self) -> Option<&dyn LinearMap> {
        self.as_ref().and_then(M::linear_map)
    }

    fn window_neuron(&self) -> Option<&dyn WindowNeuron> {
        self.as_ref().and_then(M::window_neuron)
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        self.as_ref().and_then(|module| module.footprint(x))
    }

    fn is_target(&self) -> bool {
        self.as_ref().is_some_and(M::is_target)
    }

    fn is_a(&self, ty: TypeId) -> bool {
        ty == TypeId::of::<Self>() || self.as_ref().is_some_and(|module| module.is_a(ty))
    }

    fn is_time_chunkable(&self) -> bool {
        self.as_ref().is_none_or(M::is_time_chunkable)
    }
}

impl<M: Checkpointable> Checkpointable for Box<M> {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        (**self).forward(x, context)
    }

    fn composition(&self) -> Option<Composition> {
        (**self).composition()
    }

    fn for_channels(&self, channels: Range<usize>) -> Result<Option<Part>> {
        (**self).for_channels(channels)
    }

    fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        (**self).channel_layer()
    }

    fn window_norm(&self) -> Option<&dyn WindowNorm> {
        (**self).window_norm()
    }

    fn linear_map(&self) -> Option<&dyn LinearMap> {
        (**self).linear_map()
    }

    fn window_neuron(&self) -> Option<&dyn WindowNeuron> {
        (**self).window_neuron()
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        (**self).footprint(x)
    }

    fn is_target(&self) -> bool {
        (**self).is_target()
    }

    fn is_a(&self, ty: TypeId) -> bool {
        ty == TypeId::of::<Self>() || (**self).is_a(ty)
    }

    fn is_time_chunkable(&self) -> bool {
        (**self).is_time_chunkable()
    }
}

macro_rules! tuple {
    ($($name:ident $index:tt),*) => {
        #[diagnostic::do_not_recommend]
        impl<$($name: Checkpointable),*> Checkpointable for ($($name,)*) {
            fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
                Composition::new()$(.part(stringify!($index), &self.$index))*.run(x, context)
            }

            fn composition(&self) -> Option<Composition> {
                Some(Composition::new()$(.part(stringify!($index), &self.$index))*)
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
