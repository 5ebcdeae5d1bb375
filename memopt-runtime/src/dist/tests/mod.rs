//! Groups of threads: reductions against plain loops, failures, and what training needs of a group.
#![allow(clippy::panic)]

mod failures;
mod reductions;
mod training;

use super::{Communicator, GroupError, ThreadRank};
use crate::{Error, Result};

/// Runs `f` on all ranks at once, each in a thread that owns it; what comes of it, by rank.
fn on_ranks<R: Send>(ranks: Vec<ThreadRank>, f: impl Fn(ThreadRank) -> R + Sync) -> Vec<R> {
    caught_on_ranks(ranks, f).into_iter().map(|result| result.unwrap()).collect()
}

/// As [`on_ranks`], for ranks that panic.
fn caught_on_ranks<R: Send>(
    ranks: Vec<ThreadRank>,
    f: impl Fn(ThreadRank) -> R + Sync,
) -> Vec<std::thread::Result<R>> {
    let f = &f;
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || f(rank))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    })
}

/// The error of a group inside of a result.
fn group_error<T>(result: Result<T>) -> GroupError {
    match result {
        Err(Error::Group(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no error"),
    }
}

/// A rank of no interest beyond its number.
fn number(rank: &ThreadRank) -> f32 {
    rank.rank() as f32
}
