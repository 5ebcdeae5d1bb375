//! What ranks must have in common, and an error on all of them if they have not.

use super::communicator::{Communicator, Reduce, Values};
use super::error::GroupError;
use crate::{Error, Result};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Whether all ranks have the same list, and none a problem of its own; and whether any rank asks for something.
///
/// This is one reduction of four words. Only if the ranks differ the lists are sent. `list` is printed in messages.
///
/// # Errors
/// On all ranks the same: the problem of the lowest rank that has one, or where the lists differ.
pub(crate) fn in_common(
    communicator: &dyn Communicator,
    list: &[impl Hash + ToString],
    problem: Option<String>,
    asks: bool,
) -> Result<bool> {
    // The ranks run one program, so that a hash of the standard library's is the same on all.
    let mut hasher = DefaultHasher::new();
    list.hash(&mut hasher);
    let hash = hasher.finish();
    // The largest of the complements is the complement of the smallest.
    let mut words = [flag(communicator, &problem), hash, !hash, u64::from(asks)];
    communicator.all_reduce(Values::U64(&mut words), Reduce::Max)?;
    let [first, largest, complement, asked] = words;
    tell(communicator, first, problem)?;
    if largest == !complement {
        return Ok(asked != 0);
    }
    Err(difference(communicator, list)?)
}

/// An error that names a rank.
pub(super) fn refuse(rank: usize, what: String) -> Error {
    GroupError::Refused { rank, what }.into()
}

/// A word whose maximum over the ranks names the lowest rank with a problem; 0 for none.
fn flag(communicator: &dyn Communicator, problem: &Option<String>) -> u64 {
    problem.as_ref().map_or(0, |_| (communicator.size() - communicator.rank()) as u64)
}

/// Gives all ranks the problem of the rank that the flags' maximum names.
fn tell(communicator: &dyn Communicator, first: u64, problem: Option<String>) -> Result<()> {
    if first == 0 {
        return Ok(());
    }
    let rank = communicator.size().saturating_sub(first as usize);
    let mut text = problem.unwrap_or_default().into_bytes();
    communicator.broadcast(rank, &mut text)?;
    Err(refuse(rank, String::from_utf8_lossy(&text).into_owned()))
}

/// How the lists differ, of the lowest rank whose list is not rank 0's.
fn difference(communicator: &dyn Communicator, list: &[impl ToString]) -> Result<Error> {
    let mine: Vec<String> = list.iter().map(ToString::to_string).collect();
    let mut first = mine.join("\n").into_bytes();
    communicator.broadcast(0, &mut first)?;
    let first = String::from_utf8_lossy(&first).into_owned();
    let problem = difference_from(&first.lines().collect::<Vec<_>>(), &mine);
    let mut flags = [flag(communicator, &problem)];
    communicator.all_reduce(Values::U64(&mut flags), Reduce::Max)?;
    Ok(match tell(communicator, flags[0], problem) {
        Err(error) => error,
        Ok(()) => refuse(0, "its list is not that of the other ranks; give the same on all ranks".to_owned()),
    })
}

/// The first place where a list is not that of rank 0.
fn difference_from(first: &[&str], mine: &[String]) -> Option<String> {
    let at = (0..first.len().max(mine.len()))
        .find(|&i| first.get(i).copied() != mine.get(i).map(String::as_str))?;
    let said = |item: Option<&str>| item.map_or("nothing any more".to_owned(), str::to_owned);
    Some(format!(
        "it has {} where rank 0 has {} (place {at} of the list); give the same list in the same order on all ranks",
        said(mine.get(at).map(String::as_str)),
        said(first.get(at).copied())
    ))
}
