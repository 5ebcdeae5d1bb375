//! Few images: threads share the output channels out, as a plan that recomputes some of them does.

use super::lanes::LANES;
use crate::nn::parallel::least_items;
use std::ops::Range;

/// Output channels of one task at most: the weights of one product.
const OUTPUTS: usize = 128;

/// Ranges of output channels for the threads, if there are fewer tasks than would occupy them, more than one range, and enough
/// work: so many multiplications in all.
pub(super) fn ranges(tasks: usize, outputs: usize, work: usize) -> Option<Vec<Range<usize>>> {
    ranges_for(rayon::current_num_threads(), tasks, outputs, work)
}

/// The same for so many threads.
pub(super) fn ranges_for(
    threads: usize,
    tasks: usize,
    outputs: usize,
    work: usize,
) -> Option<Vec<Range<usize>>> {
    let wanted = 2 * threads;
    if tasks >= wanted || outputs <= LANES || least_items(work / 2) > 1 {
        return None;
    }
    let step = outputs.div_ceil(wanted).next_multiple_of(LANES).min(OUTPUTS);
    Some((0..outputs).step_by(step).map(|start| start..(start + step).min(outputs)).collect())
}

/// Puts the planes of a range of channels of each image in their places: `part` holds those of one image after the other,
/// `to` whole images.
pub(super) fn place<T, U: Copy>(
    (to, image): (&mut [T], usize),
    range: &Range<usize>,
    plane: usize,
    part: &[U],
    store: impl Fn(U) -> T,
) {
    for (to, part) in to.chunks_exact_mut(image).zip(part.chunks_exact(range.len() * plane)) {
        let to = &mut to[range.start * plane..range.end * plane];
        to.iter_mut().zip(part).for_each(|(to, value)| *to = store(*value));
    }
}
