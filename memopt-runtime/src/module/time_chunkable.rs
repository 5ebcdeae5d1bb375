//! Which parts can be run chunk after chunk of the window.

use super::checkpointable::Checkpointable;

/// A part whose output at a time step depends on that step, earlier ones through states that the
/// [`Context`](super::Context) carries, and nothing else; so that it can be run in time chunks.
///
/// To the bit, if its weights go through [`Context::weight`](super::Context::weight), as those of our layers do. The
/// gradient of a weight that is used by Candle's own operations is added up chunk by chunk, in another order than over
/// the whole window: within 1e-5 of it, and noted in [`Session::notes`](super::Session::notes).
///
/// A marker for the compiler: `#[checkpoint(time_chunks)]` on a struct or an enum demands it of every part in it, and
/// the type has it then. [`Checkpointable::is_time_chunkable`] is what segments ask.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be run in time chunks, which `#[checkpoint(time_chunks)]` demands of every part",
    label = "does not implement `TimeChunkable`",
    note = "a struct or enum of yours whose parts all can: `#[checkpoint(time_chunks)]` on it too",
    note = "a layer of yours that can: `impl memopt::module::TimeChunkable` for it",
    note = "a part that needs the whole window: remove `#[checkpoint(time_chunks)]`"
)]
pub trait TimeChunkable: Checkpointable {}

impl<M: TimeChunkable> TimeChunkable for Vec<M> {}

impl<M: TimeChunkable, const N: usize> TimeChunkable for [M; N] {}

impl<M: TimeChunkable> TimeChunkable for Option<M> {}

impl<M: TimeChunkable> TimeChunkable for Box<M> {}

macro_rules! tuple {
    ($($name:ident),*) => {
        #[diagnostic::do_not_recommend]
        impl<$($name: TimeChunkable),*> TimeChunkable for ($($name,)*) {}
    };
}
tuple!(A);
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, E);
tuple!(A, B, C, D, E, F);
tuple!(A, B, C, D, E, F, G);
tuple!(A, B, C, D, E, F, G, H);
