//! A wire of meetings.

use super::super::call::WORDS;
use super::super::error::GroupError;
use super::super::wire::Wire;
use super::meeting::Meeting;
use std::ops::Range;
use std::sync::Arc;

/// A rank's end.
#[derive(Debug)]
pub(super) struct ThreadWire {
    pub(super) rank: usize,
    pub(super) meeting: Arc<Meeting>,
}

impl ThreadWire {
    pub(super) fn new(rank: usize, meeting: Arc<Meeting>) -> Self {
        Self { rank, meeting }
    }
}

impl Wire for ThreadWire {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.meeting.size()
    }

    fn words(&self, mine: [u64; WORDS]) -> Result<Vec<[u64; WORDS]>, GroupError> {
        let all = self.meeting.meet(self.rank, bytemuck::bytes_of(&mine).to_vec())?;
        Ok(all.iter().map(|words| bytemuck::pod_read_unaligned(words)).collect())
    }

    fn all_to_all(&self, send: &[u8], ranges: &[Range<usize>]) -> Result<Vec<u8>, GroupError> {
        let mine = ranges[self.rank].clone();
        let all = self.meeting.meet(self.rank, send.to_vec())?;
        let mut received = Vec::with_capacity(all.len() * mine.len());
        all.iter().for_each(|bytes| received.extend_from_slice(&bytes[mine.clone()]));
        Ok(received)
    }

    fn all_gather(&self, mine: &[u8], into: &mut [u8], ranges: &[Range<usize>]) -> Result<(), GroupError> {
        let all = self.meeting.meet(self.rank, mine.to_vec())?;
        all.iter().zip(ranges).for_each(|(bytes, range)| into[range.clone()].copy_from_slice(bytes));
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), GroupError> {
        let brought = if self.rank == root { bytes.to_vec() } else { Vec::new() };
        let all = self.meeting.meet(self.rank, brought)?;
        bytes.copy_from_slice(&all[root]);
        Ok(())
    }
}
