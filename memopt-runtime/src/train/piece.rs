//! Large buffers in pieces for the threads; what is computed does not depend on who takes which.

use rayon::prelude::*;

/// Elements of a piece: a few of them fit in a core's cache together.
pub(super) const LENGTH: usize = 1 << 14;

/// Runs `f` on each piece. One piece stays on the calling thread.
pub(super) fn each<R: Send>(values: &mut [R], f: impl Fn(&mut [R]) + Send + Sync) {
    match values.len() <= LENGTH {
        true => f(values),
        false => values.par_chunks_mut(LENGTH).for_each(f),
    }
}

/// Runs `f` on each piece of both.
pub(super) fn each_of_both<R: Send + Sync>(
    to: &mut [R],
    from: &[R],
    f: impl Fn(&mut [R], &[R]) + Send + Sync,
) {
    match to.len() <= LENGTH {
        true => f(to, from),
        false => {
            to.par_chunks_mut(LENGTH).zip(from.par_chunks(LENGTH)).for_each(|(to, from)| f(to, from));
        }
    }
}

/// What `f` says of each piece, in order.
pub(super) fn map<R: Sync, T: Send>(values: &[R], f: impl Fn(&[R]) -> T + Send + Sync) -> Vec<T> {
    match values.len() <= LENGTH {
        true => vec![f(values)],
        false => values.par_chunks(LENGTH).map(f).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_in_one_piece() {
        for n in [0, 1, LENGTH, LENGTH + 1, 3 * LENGTH + 5] {
            let mut values: Vec<usize> = (0..n).collect();
            assert_eq!(map(&values, |values| values.len()).into_iter().sum::<usize>(), n);
            let from = values.clone();
            each(&mut values, |values| values.iter_mut().for_each(|value| *value += 1));
            each_of_both(&mut values, &from, |to, from| {
                to.iter_mut().zip(from).for_each(|(to, from)| *to += from)
            });
            assert!(values.iter().enumerate().all(|(index, &value)| value == 2 * index + 1));
        }
    }
}
