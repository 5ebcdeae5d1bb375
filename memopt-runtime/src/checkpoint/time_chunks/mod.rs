//! Segments that are recomputed and gone back through in time chunks, exactly.
//!
//! Layers A, then at most one norm over the window, then layers B. Forward, first chunk first: A; the norm's statistics
//! over the window; the norm and B, in the buffer of A's output where they have the same form. Backward, last chunk first:
//! A, the norm with the statistics of the first pass, B and back through B; the gradient at the norm's output takes the place
//! of the incoming gradient, and its two sums are added up. Then again: A, back through the norm with the sums of the window,
//! back through A.
//!
//! Neurons go on from chunk to chunk, and gradients go back through their states. The states at the borders are computed
//! again in the segment's own backward, by one more pass over all chunks but the last (`borders`): kept from forward on,
//! those of all segments would be alive at the peak. Weights are added up in buffers that the chunks share. So every sum is
//! the same sequence of additions as over the whole window.
//!
//! What has no need of a graph has none (`in_place`): a convolution or linear layer in front of the norm, and B where it is
//! one layer of neurons without weights. The rest goes by its graph, built chunk by chunk (`in_graph`).
//!
//! Where norms take the statistics of each chunk by itself, which is another result, they are layers like any other.

mod backward;
mod borders;
mod chunked;
mod first_pass;
mod in_graph;
mod in_place;

use super::layout::TimeChunks;
use super::leaves::{leaves_of, Leaf};
use super::options::Options;
use super::replay::in_chunks;
use super::segment::Segment;
use crate::compress::Auto;
use crate::module::{Context, Signal, Step};
use crate::{Error, Result};
use backward::Backward;
use candle_core::Tensor;
use chunked::Chunked;
use first_pass::{FirstPass, Ran};
use std::ops::Range;

/// What the norms of a chunk take the statistics of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::checkpoint) enum Norms {
    OfWindow,
    OfChunk,
}

/// Runs steps as segments of `chunks` time chunks each, with one norm over the window at most in each.
pub(in crate::checkpoint) fn in_time_chunks(
    steps: &[Step],
    chunks: usize,
    norms: Norms,
    options: Options,
    x: Signal,
    context: &mut Context,
) -> Result<Signal> {
    let path = options.segment.clone();
    // A view that repeats elements has a gradient for each of them here.
    let mut x = x.into_dense(&path)?.contiguous()?;
    if !x.dtype().is_float() {
        let what =
            format!("floats expected in time chunks, {} given; recompute it as a whole", x.dtype().as_str());
        return Err(Error::LayerInput { part: path, what });
    }
    match x.dims().first() {
        None => {
            return Err(Error::LayerInput {
                part: path,
                what: "[T, N, ...] expected, a scalar given".into(),
            });
        }
        Some(&steps) if steps < chunks => {
            context.note(format!(
                "`{path}`: {chunks} time chunks of a window of {steps} steps: one for each step"
            ));
        }
        _ => {}
    }
    let leaves = leaves_of(steps);
    let coupled = context.takes_batch_statistics() && norms == Norms::OfWindow;
    let pieces = one_norm_each(&leaves, coupled);
    let several = pieces.len() > 1;
    for (index, piece) in pieces.into_iter().enumerate() {
        let options = match (several, index) {
            (false, _) => options.clone(),
            (true, 0) => options.clone().renamed(format!("{path}[0]")),
            // What flows between them has no declared compressor.
            (true, index) => options.clone().renamed(format!("{path}[{index}]")).compressor(Auto),
        };
        x = run(Chunked::new(leaves[piece].to_vec(), chunks, norms, coupled), options, x, context)?;
    }
    Ok(x.into())
}

/// Whether layers can be run in time chunks.
pub(in crate::checkpoint) fn check(leaves: &[Leaf], segment: &str) -> Result<()> {
    match leaves.iter().find(|leaf| !leaf.is_time_chunkable() && leaf.window_norm().is_none()) {
        None => Ok(()),
        Some(leaf) => Err(Error::NotTimeChunkable { segment: segment.to_owned(), part: leaf.path() }),
    }
}

/// How a window of so many steps would be run in chunks.
pub(in crate::checkpoint) fn layout(
    steps: &[Step],
    chunks: usize,
    coupled: bool,
    window: usize,
) -> Vec<TimeChunks> {
    let leaves = leaves_of(steps);
    let norms = if coupled { Norms::OfWindow } else { Norms::OfChunk };
    let of = |piece: Range<usize>| {
        let chunked = Chunked::new(leaves[piece.clone()].to_vec(), chunks, norms, coupled);
        // Layers of ours without time have none; of others it is not known.
        let has_states = chunked.before().iter().any(|leaf| !leaf.is_stateless());
        TimeChunks {
            norm: chunked.norm,
            has_layer: chunked.layer().is_some(),
            in_place: chunked.norm_neurons().is_some(),
            ranges: chunked.ranges(window),
            ranges_in_place: chunked.ranges_in_place(window, has_states),
            leaves: piece,
        }
    };
    one_norm_each(&leaves, coupled).into_iter().map(of).collect()
}

/// Cuts layers before the layer in front of each norm but the first.
fn one_norm_each(leaves: &[Leaf], coupled: bool) -> Vec<Range<usize>> {
    let norms: Vec<usize> =
        (0..leaves.len()).filter(|&i| coupled && leaves[i].window_norm().is_some()).collect();
    let mut borders = vec![0];
    for pair in norms.windows(2) {
        borders.push((pair[1] - 1).max(pair[0] + 1));
    }
    borders.push(leaves.len());
    borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn run(chunked: Chunked, options: Options, x: Tensor, context: &mut Context) -> Result<Tensor> {
    let name = options.segment.clone();
    let segment = Segment::new(&[&x], options)?;
    drop(x);
    let before = context.clone();
    let (mut first, record) = before.first_pass();
    if chunked.norms == Norms::OfChunk {
        first = first.with_norms_per_chunk();
    }
    let mut left = Ran::default();
    let verify = segment.verifies();
    let twin = chunked.detached();
    let mut ran = segment.run(|x| -> candle_core::Result<Tensor> {
        let pass = FirstPass::new(&twin, &first, (&name, verify), x[0].dim(0)?);
        let (y, ran) = pass.run(&x[0], context)?;
        left = ran;
        Ok(y)
    })?;
    ran.fresh = true;
    segment.adopt(&mut ran, chunked.leaves.iter().flat_map(Leaf::parameters), context)?;
    let mut again = before.recompute(record, ran.weights.accumulators());
    if chunked.norms == Norms::OfChunk {
        again = again.with_norms_per_chunk();
    }
    let backward = Backward { chunked, ran: left, context: again, name };
    segment.seal_with(ran, move |kept, gradients| in_chunks(kept, gradients, |chunks| backward.back(chunks)))
}
