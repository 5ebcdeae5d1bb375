#![allow(clippy::panic)]

mod batches;
mod errors;
mod order;
mod prefetch;

use super::{Batch, Collate, Loader};

/// A loader of the indices themselves, whose batches are the lists of them.
fn of_indices(samples: usize) -> Loader<usize, impl Collate<usize, Batch = Vec<usize>>> {
    Loader::new((0..samples).collect::<Vec<_>>()).collate(|samples: Vec<usize>| Ok(samples))
}

/// What the batches of an epoch are.
fn epoch<C>(loader: &Loader<usize, C>, epoch: u64) -> Vec<Batch<Vec<usize>>>
where
    C: Collate<usize, Batch = Vec<usize>> + 'static,
{
    loader.epoch(epoch).unwrap().map(Result::unwrap).collect()
}

fn data<T: Clone>(batches: &[Batch<Vec<T>>]) -> Vec<Vec<T>> {
    batches.iter().map(|batch| batch.data.clone()).collect()
}
