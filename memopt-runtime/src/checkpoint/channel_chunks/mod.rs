//! Segments that are recomputed and gone back through in groups of output channels, exactly.
//!
//! For layers F (a pool, say), a convolution or linear layer, a norm over the window, and neurons that work each by
//! itself.
//! Statistics and neurons are by channel, so that the recompute of a group of channels over the whole window finishes the
//! neurons' backward, the norm's two sums and the norm's backward for them in one pass: no states at borders, and no
//! second pass. The gradient at the layer's output takes the place of the incoming one, group by group; then one backward
//! of the layer, and of F.
//!
//! Where the neurons are one layer without weights, no graph is needed, and norm and neurons run in the layer's own
//! buffer (`in_place`): that is also how a segment of such layers is recomputed as a whole. Else their graph is built
//! group by group (`in_graph`).

mod features;
mod in_graph;
mod in_place;
mod sliced;

use super::leaves::{leaves_of, Leaf};
use super::options::Options;
use crate::module::{Context, Signal, Step};
use crate::Result;
use sliced::{Groups, Sliced};

/// Runs steps as a segment of `chunks` groups of channels. In evaluation, whose norm is no sum over the window, they are
/// recomputed as a whole.
pub(super) fn in_channel_chunks(
    steps: &[Step],
    chunks: usize,
    options: Options,
    x: Signal,
    context: &mut Context,
) -> Result<Signal> {
    // A view that repeats elements has a gradient for each of them here.
    let x = x.into_dense(options.segment())?.contiguous()?;
    let sliced = Sliced::of(leaves_of(steps), Groups::Asked(chunks), options.segment())?;
    let y = match sliced.norm_neurons().is_some() {
        true => in_place::run(sliced, options, x, context)?,
        false => in_graph::run(sliced, options, x, context)?,
    };
    Ok(y.into())
}

/// Runs steps as a segment that is recomputed as a whole, in place, if they and the input are such as can; else gives the
/// input back.
pub(super) fn recomputed_in_place(
    steps: &[Step],
    options: &Options,
    x: Signal,
    context: &mut Context,
) -> Result<Result<Signal, Signal>> {
    let x = match x {
        // One that repeats its elements is kept once by the other way.
        Signal::Dense(x) if context.takes_batch_statistics() && !x.stride().contains(&0) => x,
        other => return Ok(Err(other)),
    };
    match Sliced::of(leaves_of(steps), Groups::Fitting, options.segment()) {
        Ok(sliced) if sliced.norm_neurons().is_some() && sliced.takes(x.dims()) => {
            let y = in_place::run(sliced, options.clone(), x.contiguous()?, context)?;
            Ok(Ok(y.into()))
        }
        _ => Ok(Err(x.into())),
    }
}

/// Whether layers can be run in channel chunks.
pub(super) fn check(leaves: Vec<Leaf>, segment: &str) -> Result<()> {
    Sliced::of(leaves, Groups::Asked(1), segment).map(|_| ())
}

/// How layers are run in groups of channels.
pub(super) struct Arrangement {
    /// Which is the layer with weights.
    pub(super) layer: usize,
    /// Its output channels that are recomputed at a time.
    pub(super) groups: Vec<std::ops::Range<usize>>,
    /// Whether it goes without a graph.
    pub(super) in_place: bool,
}

/// How steps would be run in so many groups, or in as many as fit; `None`: they cannot be, or are not.
pub(super) fn arrangement(
    steps: &[Step],
    chunks: Option<usize>,
    input: &[usize],
    output_bytes: impl Fn(usize) -> usize,
) -> Option<Arrangement> {
    let groups = chunks.map_or(Groups::Fitting, Groups::Asked);
    let sliced = Sliced::of(leaves_of(steps), groups, "").ok()?;
    let in_place = sliced.norm_neurons().is_some();
    if chunks.is_none() && !(in_place && sliced.takes(input)) {
        return None;
    }
    let (_, layer, ..) = sliced.middle()?;
    Some(Arrangement {
        layer: sliced.layer,
        groups: sliced.ranges(layer, output_bytes(sliced.layer)),
        in_place,
    })
}
