//! A wire of MPI's collective operations; it lives in one thread.

use super::super::call::WORDS;
use super::super::error::GroupError;
use super::super::wire::Wire;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};
use mpi::{Count, Threading};
use std::io::Write;
use std::ops::Range;

/// MPI, from its start to its end.
pub(super) struct MpiWire {
    world: SimpleCommunicator,
    rank: usize,
    size: usize,
    /// MPI is closed when this goes, which is after the communicator.
    _universe: Universe,
}

impl std::fmt::Debug for MpiWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MpiWire({} of {})", self.rank, self.size)
    }
}

/// Tells people which rank failed, and why. Errors that end a job must be seen in whatever a program logs.
pub(super) fn say(rank: usize, why: &str) {
    // In one piece, so that lines of several ranks do not mix; if nobody can be told, the job ends all the same.
    let line = format!("memopt: rank {rank} failed: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

impl MpiWire {
    pub(super) fn initialize() -> Result<Self, GroupError> {
        let what = "it was started in this process before, and can be only once".to_owned();
        // The thread that starts MPI is the only one that calls it.
        let started = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, _) = started.ok_or(GroupError::Unavailable { backend: "MPI", what })?;
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        Ok(Self { world, rank, size, _universe: universe })
    }

    /// Ends all processes of the job with a message.
    pub(super) fn end_job(&self, rank: usize, why: &str) {
        say(rank, why);
        self.world.abort(1);
    }
}

/// Numbers of bytes and offsets as MPI takes them: a piece is far below what 32 bits count.
fn counts(ranges: &[Range<usize>]) -> (Vec<Count>, Vec<Count>) {
    ranges.iter().map(|range| (range.len() as Count, range.start as Count)).unzip()
}

/// No bytes, at a real address: Rust's own empty slices of bytes lie at address 1, which is Open MPI's `MPI_IN_PLACE`.
fn at_real_address(bytes: &[u8]) -> &[u8] {
    static SOMEWHERE: [u8; 1] = [0];
    match bytes {
        [] => &SOMEWHERE[..0],
        bytes => bytes,
    }
}

impl Wire for MpiWire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn words(&self, mine: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>, GroupError> {
        let mut all = vec![[0; WORDS]; self.size];
        self.world.all_gather_into(&mine[..], all.as_flattened_mut());
        Ok(all)
    }

    fn all_to_all(&self, send: &[u8], ranges: &[Range<usize>]) -> Result<Vec<u8>, GroupError> {
        let mine = ranges[self.rank].len();
        // With room for a byte, and so at a real address too.
        let mut received = vec![0; (mine * self.size).max(1)];
        received.truncate(mine * self.size);
        let slots: Vec<_> = (0..self.size).map(|rank| rank * mine..(rank + 1) * mine).collect();
        let (send_counts, send_starts) = counts(ranges);
        let (counts, starts) = counts(&slots);
        self.world.all_to_all_varcount_into(
            &Partition::new(at_real_address(send), send_counts, send_starts),
            &mut PartitionMut::new(&mut received[..], counts, starts),
        );
        Ok(received)
    }

    fn all_gather(&self, mine: &[u8], into: &mut [u8], ranges: &[Range<usize>]) -> Result<(), GroupError> {
        let (counts, starts) = counts(ranges);
        self.world
            .all_gather_varcount_into(at_real_address(mine), &mut PartitionMut::new(into, counts, starts));
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), GroupError> {
        self.world.process_at_rank(root as i32).broadcast_into(bytes);
        Ok(())
    }
}
