//! Which layers may be demanded to run in time chunks: `#[checkpoint(time_chunks)]`.

use super::{
    AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, BatchNorm, Conv, Dropout, Flatten, Identity, If,
    LayerNorm, Lif, Linear, MaxPool2d, Plif,
};
use crate::module::TimeChunkable;

macro_rules! chunkable {
    ($($layer:ty),*) => {
        $(#[diagnostic::do_not_recommend]
        impl TimeChunkable for $layer {})*
    };
}

// Batch norm goes by its pieces, so that its chunks are exact too.
chunkable!(
    AdaptiveAvgPool2d,
    AdaptiveMaxPool2d,
    AvgPool2d,
    BatchNorm,
    Dropout,
    Flatten,
    Identity,
    If,
    LayerNorm,
    Lif,
    Linear,
    MaxPool2d,
    Plif
);

#[diagnostic::do_not_recommend]
impl<const D: usize> TimeChunkable for Conv<D> {}
