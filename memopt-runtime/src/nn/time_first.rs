//! From batch first to time first.

use super::input::wrong;
use crate::module::{Checkpointable, Context, Footprint, Incoming, Signal};
use crate::parameters::{Parameters, Visitor};
use crate::Result;

/// `[N, T, ...]` -> `[T, N, ...]`: the order in which all other layers take their input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeFirst;

#[diagnostic::do_not_recommend]
impl Parameters for TimeFirst {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        *self
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for TimeFirst {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let x = x.into_dense(context.path())?;
        if x.dims().len() < 2 {
            return Err(wrong(context.path(), format!("[N, T, ...] expected, {:?} given", x.dims())));
        }
        Ok(x.transpose(0, 1)?.contiguous()?.into())
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let mut output = x.dims.clone();
        (output.len() >= 2).then(|| output.swap(0, 1))?;
        // With one of either, the copy is none.
        let is_view = output.iter().take(2).any(|&dim| dim == 1);
        Some(Footprint { output, is_view, is_in_place: false, ..Footprint::elementwise(x) })
    }

    /// Its input has no time in front to be cut along.
    fn is_time_chunkable(&self) -> bool {
        false
    }
}
