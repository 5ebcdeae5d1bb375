//! One row for each image.

use super::input::wrong;
use crate::autograd::view;
use crate::module::{Checkpointable, Context, Footprint, Incoming, Signal};
use crate::parameters::{Parameters, Visitor};
use crate::Result;

/// `[T, N, ...]` -> `[T, N, F]`: the elements of each image in row-major order, a view where the input is contiguous.
///
/// Backward hands the gradient's buffer on in the input's dimensions, without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flatten;

#[diagnostic::do_not_recommend]
impl Parameters for Flatten {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        *self
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for Flatten {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let x = x.into_dense(context.path())?;
        match *x.dims() {
            [_, _, _] => Ok(x.into()),
            [steps, images, ref rest @ ..] if !rest.is_empty() => {
                Ok(view(&x, (steps, images, rest.iter().product::<usize>()))?.into())
            }
            _ => Err(wrong(context.path(), format!("[T, N, ...] expected, {:?} given", x.dims()))),
        }
    }

    fn footprint(&self, x: &Incoming) -> Option<Footprint> {
        let (steps, images) = (x.dims.first()?, x.dims.get(1)?);
        Some(Footprint::view(vec![*steps, *images, x.dims.iter().skip(2).product()]))
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}
