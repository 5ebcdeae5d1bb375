//! Ranks that are threads of one process.

mod meeting;
mod wire;

use super::communicator::{Communicator, Reduce, Values};
use super::error::GroupError;
use super::exchange::{self, PIECE};
use crate::Result;
use meeting::Meeting;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use wire::ThreadWire;

/// Groups of threads of one process, for the cores of one machine and for trying out programs for many.
#[derive(Debug)]
pub struct Threads;

impl Threads {
    /// How long a rank waits for the others: ten minutes. It is a last resort; a rank that fails says so at once.
    pub const TIMEOUT: Duration = Duration::from_secs(600);

    /// A group of `n` ranks; move each into a thread of its own.
    pub fn group(n: usize) -> Vec<ThreadRank> {
        Self::group_with_timeout(n, Self::TIMEOUT)
    }

    /// A group whose ranks wait so long for each other, at most.
    pub fn group_with_timeout(n: usize, timeout: Duration) -> Vec<ThreadRank> {
        Self::with_piece(n, timeout, PIECE)
    }

    /// A group whose values are exchanged in pieces of so many bytes.
    pub(super) fn with_piece(n: usize, timeout: Duration, piece: usize) -> Vec<ThreadRank> {
        let meeting = Arc::new(Meeting::new(n, timeout));
        let wire = |rank| ThreadWire::new(rank, meeting.clone());
        let rank =
            |rank| ThreadRank { wire: wire(rank), turn: Mutex::default(), sent: AtomicU64::default(), piece };
        (0..n).map(rank).collect()
    }
}

/// A rank of a group of threads.
///
/// A rank that is dropped has left: the others' calls end with an error that says so, and whether it panicked. So let the
/// thread own it.
#[derive(Debug)]
pub struct ThreadRank {
    wire: ThreadWire,
    /// One call at a time; a call is several meetings.
    turn: Mutex<()>,
    sent: AtomicU64,
    piece: usize,
}

impl ThreadRank {
    fn count(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Communicator for ThreadRank {
    fn rank(&self) -> usize {
        self.wire.rank
    }

    fn size(&self) -> usize {
        self.wire.meeting.size()
    }

    fn all_reduce(&self, mut values: Values<'_>, reduce: Reduce) -> Result<()> {
        let _turn = self.turn.lock();
        let kind = values.kind();
        let bytes = values.bytes();
        exchange::all_reduce(&self.wire, bytes, kind, reduce, self.piece)?;
        self.count(exchange::reduce_traffic(self.rank(), self.size(), bytes.len() / kind.size(), kind));
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let _turn = self.turn.lock();
        exchange::broadcast(&self.wire, root, bytes, self.piece)?;
        self.count(exchange::broadcast_traffic(self.rank(), self.size(), root, bytes.len()));
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        let _turn = self.turn.lock();
        Ok(exchange::barrier(&self.wire)?)
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn abort(&self, why: &str) {
        self.wire.meeting.fail(GroupError::RankFailed { rank: self.rank(), why: why.to_owned() });
    }
}

impl Drop for ThreadRank {
    fn drop(&mut self) {
        let why = if std::thread::panicking() { "its thread panicked" } else { "it left (it was dropped)" };
        self.abort(why);
    }
}
