//! Ranks that are processes under MPI.
//!
//! Build with the feature `mpi` (it needs an MPI library with headers, and libclang) and start with `mpirun -n 4 program`.

mod panics;
mod wire;

use super::communicator::{Communicator, Reduce, Values};
use super::error::GroupError;
use super::exchange::{self, PIECE};
use super::wire::Wire;
use super::worker::Worker;
use crate::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::MpiWire;

/// How long a rank that aborts waits for its communication thread, which may be in the middle of a call.
const ABORT: Duration = Duration::from_secs(5);

/// This process's rank under MPI.
///
/// - *Threads.* One thread of the process makes all calls to MPI; `Mpi` hands them to it and waits. So any thread may use it, and
///   the program needs no threading level; two threads that call at once are served in an order that is not said.
/// - *Order.* Reductions are combined in rank order by memopt; `MPI_Allreduce`, whose order is the library's, is not used.
/// - *Failure.* A rank that panics, drops its `Mpi` while others still call, or calls [`abort`](Communicator::abort) ends the
///   job by `MPI_Abort`, after a line on standard error: `memopt: rank 1 failed: ...`. A rank that is killed or exits without dropping
///   it is found by `mpirun`, which ends the others. For the message of a panic `Mpi` puts a panic hook before the one that is there.
/// - *End.* Drop it at the end of the program on every rank: the drop waits until all ranks do, and then closes MPI, once
///   and for all.
#[derive(Debug)]
pub struct Mpi {
    /// `None` only while it is dropped.
    worker: Option<Worker<MpiWire>>,
    rank: usize,
    size: usize,
    piece: usize,
    sent: AtomicU64,
}

impl Mpi {
    /// Starts MPI; this process is one of those that `mpirun` started, or the only one without it.
    ///
    /// # Errors
    /// If MPI was started in this process before.
    pub fn initialize() -> Result<Self> {
        Self::with_piece(PIECE)
    }

    /// As [`initialize`](Self::initialize); values go in pieces of at most so many bytes instead of 64 MiB, the smallest number
    /// that a rank gives.
    ///
    /// # Errors
    /// As [`initialize`](Self::initialize).
    pub fn with_piece(bytes: usize) -> Result<Self> {
        let worker = Worker::start("MPI", MpiWire::initialize)?;
        let (rank, size, piece) = worker.run(0, move |wire| {
            let pieces = wire.words([bytes.min(PIECE) as u64, 0, 0])?;
            let smallest = pieces.iter().map(|words| words[0] as usize).min();
            Ok((wire.rank(), wire.size(), smallest.unwrap_or(PIECE)))
        })?;
        panics::remember();
        Ok(Self { worker: Some(worker), rank, size, piece, sent: AtomicU64::new(0) })
    }

    fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&MpiWire) -> Result<R, GroupError> + Send + 'static,
    ) -> Result<R> {
        // A rank that has left is waited for in vain: that ends the job.
        let or_end = |wire: &MpiWire| job(wire).inspect_err(|error| end_if_a_rank_left(wire, error));
        let ended = GroupError::Backend { backend: "MPI", rank: self.rank, what: "it is closed".to_owned() };
        let worker = self.worker.as_ref().ok_or(ended)?;
        Ok(worker.run(self.rank, or_end)?)
    }

    fn count(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn end_if_a_rank_left(wire: &MpiWire, error: &GroupError) {
    if let GroupError::RankFailed { rank, why } = error {
        wire.end_job(*rank, why);
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&self, mut values: Values<'_>, reduce: Reduce) -> Result<()> {
        let (kind, piece) = (values.kind(), self.piece);
        let bytes = values.bytes();
        let mut owned = bytes.to_vec();
        let reduced = self
            .run(move |wire| exchange::all_reduce(wire, &mut owned, kind, reduce, piece).map(|()| owned))?;
        bytes.copy_from_slice(&reduced);
        self.count(exchange::reduce_traffic(self.rank, self.size, bytes.len() / kind.size(), kind));
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let piece = self.piece;
        // What is overwritten need not go along.
        let mut owned = if self.rank == root { bytes.clone() } else { Vec::new() };
        *bytes = self.run(move |wire| exchange::broadcast(wire, root, &mut owned, piece).map(|()| owned))?;
        self.count(exchange::broadcast_traffic(self.rank, self.size, root, bytes.len()));
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        self.run(exchange::barrier)
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends the job, this process too: it does not return.
    fn abort(&self, why: &str) {
        let (rank, text) = (self.rank, why.to_owned());
        if let Some(worker) = &self.worker {
            worker.run_within(ABORT, move |wire| wire.end_job(rank, &text));
        }
        // The communication thread waits for another rank. `mpirun` ends the job when this process dies.
        wire::say(rank, why);
        std::process::abort();
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort(&format!("panicked: {}", panics::last()));
        }
        let left = self.run(exchange::leave);
        if let Err(error) = left {
            self.abort(&error.to_string());
        }
        if let Some(worker) = self.worker.take() {
            worker.finish();
        }
    }
}
