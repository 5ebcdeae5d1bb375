//! The one algorithm of groups that hand bytes around: compare calls, then reduce by slices and gather.
//!
//! Each rank gets its slice from all ranks, combines them in rank order, and gives the result to all. What is added to what
//! does not depend on how the wire routes its messages; it costs each rank twice its values in traffic, the least there is.

use super::call::{compare, Call, Kind};
use super::combine::{combine, slice_of};
use super::communicator::Reduce;
use super::error::GroupError;
use super::wire::Wire;
use std::ops::Range;

/// Bytes that go over the wire in one piece: libraries count in 32 bits, and buffers beside the values stay small.
pub(super) const PIECE: usize = 64 << 20;

/// Combines the ranks' values, elements of `kind` as bytes, in place.
pub(super) fn all_reduce(
    wire: &impl Wire,
    values: &mut [u8],
    kind: Kind,
    reduce: Reduce,
    piece: usize,
) -> Result<(), GroupError> {
    let element = kind.size();
    agree(wire, Call::AllReduce(kind, reduce, values.len() / element))?;
    if wire.size() == 1 {
        return Ok(());
    }
    for piece in values.chunks_mut((piece / element).max(1) * element) {
        let ranges = byte_ranges(piece.len() / element, wire.size(), element);
        let mine = ranges[wire.rank()].len();
        let mut all = wire.all_to_all(piece, &ranges)?;
        let (combined, others) = all.split_at_mut(mine);
        if mine > 0 {
            others.chunks_exact(mine).for_each(|next| combine(kind, reduce, combined, next));
        }
        wire.all_gather(combined, piece, &ranges)?;
    }
    Ok(())
}

/// Gives all ranks the bytes of `root`.
pub(super) fn broadcast(
    wire: &impl Wire,
    root: usize,
    bytes: &mut Vec<u8>,
    piece: usize,
) -> Result<(), GroupError> {
    agree(wire, Call::Broadcast(root))?;
    if root >= wire.size() {
        return Err(GroupError::NoMember { rank: root, size: wire.size() });
    }
    let mut len = (bytes.len() as u64).to_le_bytes();
    wire.broadcast(root, &mut len)?;
    if wire.rank() != root {
        bytes.clear();
        bytes.resize(u64::from_le_bytes(len) as usize, 0);
    }
    bytes.chunks_mut(piece.max(1)).try_for_each(|piece| wire.broadcast(root, piece))
}

/// Waits for all ranks.
pub(super) fn barrier(wire: &impl Wire) -> Result<(), GroupError> {
    agree(wire, Call::Barrier)
}

/// Says that this rank makes no call any more, and waits until all say so.
#[cfg(feature = "mpi")]
pub(super) fn leave(wire: &impl Wire) -> Result<(), GroupError> {
    agree(wire, Call::Leave)
}

/// All ranks make this call.
fn agree(wire: &impl Wire, call: Call) -> Result<(), GroupError> {
    compare(&wire.words(call.words())?)
}

/// Bytes of values that a rank hands to others in [`all_reduce`]: the others' slices, and its own to each of them.
pub(super) fn reduce_traffic(rank: usize, size: usize, len: usize, kind: Kind) -> u64 {
    let mine = slice_of(rank, size, len).len();
    ((len - mine + mine * (size - 1)) * kind.size()) as u64
}

/// Bytes that a rank hands to others in [`broadcast`].
pub(super) fn broadcast_traffic(rank: usize, size: usize, root: usize, len: usize) -> u64 {
    if rank == root {
        (len * (size - 1)) as u64
    } else {
        0
    }
}

/// Each rank's slice, in bytes.
fn byte_ranges(len: usize, size: usize, element: usize) -> Vec<Range<usize>> {
    let slice = |rank| slice_of(rank, size, len);
    (0..size).map(|rank| slice(rank).start * element..slice(rank).end * element).collect()
}
