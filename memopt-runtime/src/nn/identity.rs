//! The layer that does nothing.

use crate::module::{Checkpointable, Composition, Context, Signal};
use crate::parameters::{Parameters, Visitor};
use crate::Result;

/// `y = x`: a shortcut, or a place kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity;

#[diagnostic::do_not_recommend]
impl Parameters for Identity {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        *self
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for Identity {
    fn forward(&self, x: Signal, _: &mut Context) -> Result<Signal> {
        Ok(x)
    }

    fn composition(&self) -> Option<Composition> {
        Some(Composition::new())
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}
