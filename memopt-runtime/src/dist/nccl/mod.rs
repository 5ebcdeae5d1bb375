//! Ranks with a GPU each, that talk by NCCL.

mod wire;

use super::communicator::{Communicator, Reduce, Values};
use super::error::GroupError;
use super::exchange::{self, PIECE};
use super::worker::Worker;
use crate::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use wire::NcclWire;

/// A rank of a group that exchanges its values by NCCL, between the GPUs of a machine and of several.
///
/// It is made over another group of the same ranks (MPI between processes, threads within one), the *host* group, by which
/// the ranks hand over NCCL's id and compare their calls before NCCL is called. So different calls, and a rank that
/// failed before a call, are errors and no hang, as in the host group.
///
/// - *Order.* Values are combined in rank order as in every group; `ncclAllReduce`, whose order is the library's, is not
///   used.
/// - *Memory.* Values come from host memory and go back there, a piece at a time, also those of
///   [`all_reduce_tensor`](Communicator::all_reduce_tensor).
/// - *Threads.* One thread makes all calls to NCCL; any thread may use the rank.
/// - *Libraries.* The driver (`libcuda`) and `libnccl` are looked for when it is made.
#[derive(Debug)]
pub struct Nccl {
    /// `None` only while it is dropped.
    worker: Option<Worker<NcclWire>>,
    host: Arc<dyn Communicator>,
    sent: AtomicU64,
}

impl Nccl {
    /// This rank of a group over the ranks of `host`, with the GPU of number `device`. All ranks call it.
    ///
    /// # Errors
    /// On all ranks: if one of them has no driver, no such device or no NCCL
    /// ([`GroupError::Refused`](super::GroupError::Refused) says which rank, and what is missing); the host group can still
    /// be used. If NCCL cannot connect the ranks. (`cudarc` panics over a library that is not there; that is caught, but the
    /// panic hook prints it.)
    pub fn new(host: Arc<dyn Communicator>, device: usize) -> Result<Self> {
        let wire = wire::Parts::gather(host.clone(), device)?;
        let worker = Worker::start("NCCL", move || wire.connect())?;
        Ok(Self { worker: Some(worker), host, sent: AtomicU64::new(0) })
    }
}

impl Nccl {
    fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&NcclWire) -> Result<R, GroupError> + Send + 'static,
    ) -> Result<R> {
        let closed =
            || GroupError::Backend { backend: "NCCL", rank: self.rank(), what: "it is closed".to_owned() };
        Ok(self.worker.as_ref().ok_or_else(closed)?.run(self.rank(), job)?)
    }

    fn count(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Communicator for Nccl {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn size(&self) -> usize {
        self.host.size()
    }

    fn all_reduce(&self, mut values: Values<'_>, reduce: Reduce) -> Result<()> {
        let kind = values.kind();
        let bytes = values.bytes();
        let mut owned = bytes.to_vec();
        let reduced = self
            .run(move |wire| exchange::all_reduce(wire, &mut owned, kind, reduce, PIECE).map(|()| owned))?;
        bytes.copy_from_slice(&reduced);
        self.count(exchange::reduce_traffic(self.rank(), self.size(), bytes.len() / kind.size(), kind));
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let mut owned = if self.rank() == root { bytes.clone() } else { Vec::new() };
        *bytes = self.run(move |wire| exchange::broadcast(wire, root, &mut owned, PIECE).map(|()| owned))?;
        self.count(exchange::broadcast_traffic(self.rank(), self.size(), root, bytes.len()));
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        self.run(exchange::barrier)
    }

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// As in the host group, which is over too.
    fn abort(&self, why: &str) {
        self.host.abort(why);
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("its thread panicked");
        }
        if let Some(worker) = self.worker.take() {
            worker.finish();
        }
    }
}
