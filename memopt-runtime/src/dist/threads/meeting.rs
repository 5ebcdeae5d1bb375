//! Where the threads of a group meet: each brings bytes, and all get what everyone brought.

use super::super::error::GroupError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the ranks brought, by rank.
pub(super) type Brought = Arc<[Vec<u8>]>;

/// A barrier that hands around bytes and can be ended by any rank.
#[derive(Debug)]
pub(super) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
    timeout: Duration,
    size: usize,
}

#[derive(Debug, Default)]
struct State {
    /// How many meetings are over.
    round: u64,
    /// What each rank brought to this one.
    here: Vec<Option<Vec<u8>>>,
    /// What they brought to the last one, and how many have yet to take it. All have before the next one is over, because
    /// each comes to that only afterwards.
    last: Option<Brought>,
    to_take: usize,
    /// The first failure: no meeting takes place any more.
    failure: Option<GroupError>,
}

impl Meeting {
    pub(super) fn new(size: usize, timeout: Duration) -> Self {
        let here = (0..size).map(|_| None).collect();
        Self { state: Mutex::new(State { here, ..State::default() }), changed: Condvar::new(), timeout, size }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Ends all meetings, now and later; the first failure is the one that is told.
    pub(super) fn fail(&self, error: GroupError) {
        self.state.lock().failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Brings bytes and waits for all ranks; what they brought, by rank.
    ///
    /// A meeting that all came to takes place, also if one of them fails right after it.
    pub(super) fn meet(&self, rank: usize, bytes: Vec<u8>) -> Result<Brought, GroupError> {
        let mut state = self.state.lock();
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        let round = state.round;
        state.here[rank] = Some(bytes);
        if state.here.iter().all(Option::is_some) {
            state.last = Some(state.here.iter_mut().filter_map(Option::take).collect());
            state.to_take = self.size;
            state.round += 1;
            self.changed.notify_all();
        }
        let began = Instant::now();
        while state.round == round {
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            let waited = began.elapsed();
            if waited >= self.timeout {
                let missing = (0..self.size).filter(|&rank| state.here[rank].is_none()).collect();
                let error = GroupError::TimedOut { rank, waited, missing };
                state.failure = Some(error.clone());
                self.changed.notify_all();
                return Err(error);
            }
            self.changed.wait_for(&mut state, self.timeout - waited);
        }
        let brought = state.last.clone().unwrap_or_default();
        state.to_take -= 1;
        if state.to_take == 0 {
            state.last = None;
        }
        Ok(brought)
    }
}
