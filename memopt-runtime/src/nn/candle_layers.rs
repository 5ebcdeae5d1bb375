//! Layers of candle-nn in models of ours, but for the norms.
//!
//! They run on `[T * N, ...]` under Candle's own autograd: the same bits in every plan but time chunks, since Candle sums
//! over the whole window at once. Chunks therefore refuse them, but for `Activation`; the layers of [`nn`](super) can be
//! cut.

use super::input::wrong;
use crate::module::{Checkpointable, Context, Signal};
use crate::Result;
use candle_core::{Module, Tensor};
use candle_nn::{Activation, Conv1d, Conv2d, Embedding, Linear};

/// Runs a layer on all images of all time steps at once.
fn over_images(layer: &impl Module, x: Signal, context: &Context) -> Result<Signal> {
    let x = x.into_dense(context.path())?;
    let &[steps, images, _, ..] = x.dims() else {
        return Err(wrong(context.path(), format!("[T, N, ...] expected, {:?} given", x.dims())));
    };
    let y: Tensor = layer.forward(&x.flatten(0, 1)?)?;
    let mut shape = vec![steps, images];
    shape.extend(&y.dims()[1..]);
    Ok(y.reshape(shape)?.into())
}

macro_rules! over_images {
    ($($layer:ty)*) => {
        $(#[diagnostic::do_not_recommend]
        impl Checkpointable for $layer {
            fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
                over_images(self, x, context)
            }

            fn is_time_chunkable(&self) -> bool {
                false
            }
        })*
    };
}
over_images!(Linear Conv1d Conv2d);

/// `[T, N, ...]` of indices -> `[T, N, ..., hidden]`.
#[diagnostic::do_not_recommend]
impl Checkpointable for Embedding {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        Ok(Module::forward(self, &x.into_dense(context.path())?)?.into())
    }

    fn is_time_chunkable(&self) -> bool {
        false
    }
}

#[diagnostic::do_not_recommend]
impl Checkpointable for Activation {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        Ok(Module::forward(self, &x.into_dense(context.path())?)?.into())
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}
