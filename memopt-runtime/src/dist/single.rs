//! A world of one.

use super::communicator::{Communicator, Reduce, Values};
use super::error::GroupError;
use crate::Result;
use std::sync::OnceLock;

/// A group of one rank, so that a program for many runs by itself: reductions change nothing, nothing is sent.
#[derive(Debug, Default)]
pub struct Single {
    failed: OnceLock<GroupError>,
}

impl Single {
    /// A group of its own.
    pub fn new() -> Self {
        Self::default()
    }

    fn check(&self) -> Result<()> {
        match self.failed.get() {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    }
}

impl Communicator for Single {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_reduce(&self, _: Values<'_>, _: Reduce) -> Result<()> {
        self.check()
    }

    fn broadcast(&self, root: usize, _: &mut Vec<u8>) -> Result<()> {
        self.check()?;
        match root {
            0 => Ok(()),
            rank => Err(GroupError::NoMember { rank, size: 1 }.into()),
        }
    }

    fn barrier(&self) -> Result<()> {
        self.check()
    }

    fn bytes_sent(&self) -> u64 {
        0
    }

    /// As in any group, calls after it fail.
    fn abort(&self, why: &str) {
        self.failed.get_or_init(|| GroupError::RankFailed { rank: 0, why: why.to_owned() });
    }
}
