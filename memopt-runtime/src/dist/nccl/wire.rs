//! A wire of NCCL's sends and receives; it lives in one thread. What ranks say about their calls goes over the host group.

use super::super::call::WORDS;
use super::super::communicator::{Communicator, Reduce, Values};
use super::super::error::GroupError;
use super::super::together::in_common;
use super::super::wire::Wire;
use crate::panics::caught_message;
use crate::{Error, Result};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};
use cudarc::nccl::result::NcclError;
use cudarc::nccl::{group_end, group_start, Comm, Id};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// What every rank has before NCCL connects them.
pub(super) struct Parts {
    host: Arc<dyn Communicator>,
    stream: Arc<CudaStream>,
    id: Id,
}

impl Parts {
    /// Finds the device and the libraries, and takes the id of rank 0.
    ///
    /// # Errors
    /// On all ranks, if one lacks something.
    pub(super) fn gather(host: Arc<dyn Communicator>, device: usize) -> Result<Self> {
        let stream = found("the CUDA device", || CudaContext::new(device).and_then(|gpu| gpu.new_stream()));
        // Rank 0's is used; the others' tell whether the library is there.
        let id = stream.and_then(|stream| Ok((stream, found("NCCL", Id::new)?)));
        let problem = id.as_ref().err().map(|what| format!("device {device}: {what}"));
        in_common(&*host, &[] as &[String], problem, false)?;
        let unavailable = |what| GroupError::Unavailable { backend: "NCCL", what };
        let (stream, id) = id.map_err(unavailable)?;

        let mut bytes = bytemuck::cast_slice(id.internal()).to_vec();
        host.broadcast(0, &mut bytes)?;
        let mut internal = *id.internal();
        let own: &mut [u8] = bytemuck::cast_slice_mut(&mut internal);
        if own.len() != bytes.len() {
            return Err(unavailable(format!("its id is {} bytes on rank 0", bytes.len())).into());
        }
        own.copy_from_slice(&bytes);
        Ok(Self { host, stream, id: Id::uninit(internal) })
    }

    /// Connects the ranks; returns when all have called it.
    pub(super) fn connect(self) -> Result<NcclWire, GroupError> {
        let (rank, size) = (self.host.rank(), self.host.size());
        // NCCL takes the device that is current in this thread.
        let bound = self.stream.context().bind_to_thread();
        bound.map_err(|error| failed(&*self.host, format!("{error:?} in the driver")))?;
        let comm = Comm::from_rank(self.stream.clone(), rank, size, self.id);
        let failed = |error: NcclError| failed(&*self.host, format!("{:?} in ncclCommInitRank", error.0));
        let comm = comm.map_err(failed)?;
        Ok(NcclWire { comm, stream: self.stream, host: self.host })
    }
}

/// The value of a library, or what is missing. `cudarc` panics if it does not find the library itself.
fn found<T, E: Debug>(what: &str, get: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    let got = caught_message(get).and_then(|got| got.map_err(|error| format!("{error:?}")));
    got.map_err(|why| format!("{what} cannot be used: {why}"))
}

/// A failure of the library; the other ranks' next calls fail too.
fn failed(host: &dyn Communicator, what: String) -> GroupError {
    host.abort(&format!("NCCL: {what}"));
    GroupError::Backend { backend: "NCCL", rank: host.rank(), what }
}

/// NCCL, connected.
pub(super) struct NcclWire {
    comm: Comm,
    stream: Arc<CudaStream>,
    host: Arc<dyn Communicator>,
}

impl Debug for NcclWire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NcclWire({} of {})", self.rank(), self.size())
    }
}

impl NcclWire {
    fn driver(&self, error: DriverError) -> GroupError {
        failed(&*self.host, format!("{error:?} in the driver"))
    }

    fn nccl(&self, error: NcclError) -> GroupError {
        failed(&*self.host, format!("{:?}", error.0))
    }

    /// Gives each rank the bytes of `send` in its range, and gets so many from each, one behind the other by rank.
    fn swap(&self, send: &[u8], ranges: &[Range<usize>], lens: &[usize]) -> Result<Vec<u8>, GroupError> {
        let other = |rank: &usize| *rank != self.rank();
        let up = match send {
            [] => None,
            send => Some(self.stream.clone_htod(send).map_err(|error| self.driver(error))?),
        };
        let mut down: Vec<Option<CudaSlice<u8>>> = Vec::with_capacity(lens.len());
        for (rank, &len) in lens.iter().enumerate() {
            let slice = (len > 0 && other(&rank)).then(|| self.stream.alloc_zeros(len)).transpose();
            down.push(slice.map_err(|error| self.driver(error))?);
        }
        let post = |down: &mut [Option<CudaSlice<u8>>]| -> Result<(), NcclError> {
            for rank in (0..self.size()).filter(other) {
                let part = up.as_ref().and_then(|up| up.try_slice(ranges[rank].clone()));
                if let Some(part) = part.filter(|_| !ranges[rank].is_empty()) {
                    self.comm.send(&part, rank as i32)?;
                }
                if let Some(slice) = &mut down[rank] {
                    self.comm.recv(slice, rank as i32)?;
                }
            }
            Ok(())
        };
        group_start().map_err(|error| self.nccl(error))?;
        let posted = post(&mut down);
        // A group that was begun is ended, whatever happened in it.
        let ended = group_end();
        posted.and(ended.map(drop)).map_err(|error| self.nccl(error))?;

        let mut received = Vec::with_capacity(lens.iter().sum());
        for (rank, slice) in down.iter().enumerate() {
            match slice {
                Some(slice) => {
                    let bytes = self.stream.clone_dtoh(slice).map_err(|error| self.driver(error))?;
                    received.extend_from_slice(&bytes);
                }
                None if other(&rank) => {}
                None => received.extend_from_slice(&send[ranges[rank].clone()]),
            }
        }
        self.stream.synchronize().map_err(|error| self.driver(error))?;
        Ok(received)
    }
}

impl Wire for NcclWire {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn size(&self) -> usize {
        self.host.size()
    }

    /// Over the host group: the maximum of one's own words and the others' zeros.
    fn words(&self, mine: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>, GroupError> {
        let mut all = vec![[0; WORDS]; self.size()];
        all[self.rank()] = mine;
        match self.host.all_reduce(Values::U64(all.as_flattened_mut()), Reduce::Max) {
            Ok(()) => Ok(all),
            Err(Error::Group(error)) => Err(error),
            Err(other) => {
                Err(GroupError::Backend { backend: "NCCL", rank: self.rank(), what: other.to_string() })
            }
        }
    }

    fn all_to_all(&self, send: &[u8], ranges: &[Range<usize>]) -> Result<Vec<u8>, GroupError> {
        self.swap(send, ranges, &vec![ranges[self.rank()].len(); self.size()])
    }

    fn all_gather(&self, mine: &[u8], into: &mut [u8], ranges: &[Range<usize>]) -> Result<(), GroupError> {
        let lens: Vec<_> = ranges.iter().map(Range::len).collect();
        // The ranges lie one behind the other, as what is received.
        into.copy_from_slice(&self.swap(mine, &vec![0..mine.len(); self.size()], &lens)?);
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), GroupError> {
        let (nothing, all) = (vec![0..0; self.size()], vec![0..bytes.len(); self.size()]);
        let ranges = if self.rank() == root { all } else { nothing };
        let lens: Vec<_> = (0..self.size()).map(|rank| if rank == root { bytes.len() } else { 0 }).collect();
        let received = self.swap(bytes, &ranges, &lens)?;
        bytes.copy_from_slice(&received);
        Ok(())
    }
}
