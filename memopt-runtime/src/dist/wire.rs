//! What differs between kinds of groups: how bytes get from rank to rank.

use super::call::WORDS;
use super::error::GroupError;
use std::ops::Range;

/// A rank's end of the wire. All ranks make the same calls, with buffers that fit each other.
pub(super) trait Wire {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// Every rank's words, by rank. This is the one call that ranks may make out of step with each other.
    fn words(&self, mine: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>, GroupError>;

    /// Gives each rank the bytes of `send` in its range, and gets from each as many for this rank's range; they are put one
    /// behind the other, by rank.
    fn all_to_all(&self, send: &[u8], ranges: &[Range<usize>]) -> Result<Vec<u8>, GroupError>;

    /// Gives every rank `mine`, and puts what each gives at its range of `into`.
    fn all_gather(&self, mine: &[u8], into: &mut [u8], ranges: &[Range<usize>]) -> Result<(), GroupError>;

    /// Gives every rank the bytes of `root`, of which all know the number.
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), GroupError>;
}
