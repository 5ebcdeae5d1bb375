//! What ranks do together besides their steps.

use crate::dist::{Communicator, GroupError};
use crate::{Error, Result};
use candle_core::{Device, Tensor};

/// Runs what this rank does in step with others. If it fails by itself, they are told, so that they do not wait.
pub(super) fn or_tell<T>(communicator: &dyn Communicator, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = f();
    if let Err(error) = &result {
        if communicator.size() > 1 && !is_known_to_all(error) {
            communicator.abort(&error.to_string());
        }
    }
    result
}

/// Whether every rank got this error.
fn is_known_to_all(error: &Error) -> bool {
    use GroupError::{Mismatch, RankFailed, Refused, TimedOut};
    matches!(
        error.root(),
        Error::Group(Mismatch { .. } | RankFailed { .. } | Refused { .. } | TimedOut { .. })
    )
}

/// The tensors that each rank gives, by rank, on all of them.
///
/// # Errors
/// If a rank fails.
pub(super) fn of_all_ranks(
    communicator: &dyn Communicator,
    own: Vec<(String, Tensor)>,
) -> Result<Vec<Vec<(String, Tensor)>>> {
    if communicator.size() == 1 {
        return Ok(vec![own]);
    }
    let foreign = |what: String| Error::Training { part: "the state of a rank".into(), what };
    let bytes_of = |rank: usize| {
        let mut bytes = Vec::new();
        if rank == communicator.rank() {
            let own = own.iter().map(|(name, tensor)| (name, tensor));
            bytes = safetensors::serialize(own, None).map_err(|e| foreign(e.to_string()))?;
        }
        communicator.broadcast(rank, &mut bytes)?;
        let mut tensors: Vec<(String, Tensor)> =
            candle_core::safetensors::load_buffer(&bytes, &Device::Cpu)?.into_iter().collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(tensors)
    };
    (0..communicator.size()).map(bytes_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::Threads;

    #[test]
    fn every_rank_gets_the_tensors_of_all() {
        let run = |rank: crate::dist::ThreadRank| {
            let value = Tensor::new(rank.rank() as i64, &Device::Cpu).unwrap();
            let own = (0..=rank.rank()).map(|i| (format!("{i}"), value.clone())).collect();
            let all = of_all_ranks(&rank, own).unwrap();
            rank.barrier().unwrap();
            let read = |(name, tensor): &(String, Tensor)| (name.clone(), tensor.to_scalar::<i64>().unwrap());
            all.iter().map(|own| own.iter().map(read).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let threads: Vec<_> =
            Threads::group(3).into_iter().map(|rank| std::thread::spawn(move || run(rank))).collect();
        let expected: Vec<Vec<_>> =
            (0..3).map(|rank| (0..=rank).map(|i| (i.to_string(), rank as i64)).collect()).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), expected);
        }
    }
}
