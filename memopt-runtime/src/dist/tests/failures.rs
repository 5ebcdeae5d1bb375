//! A rank that fails ends the others' calls with an error that says who and why. A hang would show as `TimedOut`.

use super::super::{Communicator, GroupError, Reduce, ThreadRank, Threads, Values};
use super::{caught_on_ranks, group_error, on_ranks};
use crate::Result;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn group(n: usize) -> Vec<ThreadRank> {
    Threads::group_with_timeout(n, PATIENCE)
}

fn reduce(rank: &ThreadRank) -> Result<()> {
    rank.all_reduce(Values::F32(&mut [1.; 10]), Reduce::Sum)
}

/// The calls of the others while rank 1 does what ends it.
fn others_see(end: impl Fn(ThreadRank) + Sync) -> Vec<GroupError> {
    let results = caught_on_ranks(group(3), |rank| {
        reduce(&rank).unwrap();
        if rank.rank() == 1 {
            end(rank);
            return None;
        }
        let current = group_error(reduce(&rank));
        let next = group_error(rank.barrier());
        assert_eq!(current, next);
        Some(current)
    });
    results.into_iter().filter_map(Result::ok).flatten().collect()
}

#[test]
fn a_panic_is_told() {
    let errors = others_see(|_rank| std::panic::resume_unwind(Box::new("no hook, no noise")));
    let why = "its thread panicked".to_owned();
    assert_eq!(errors, vec![GroupError::RankFailed { rank: 1, why }; 2]);
}

#[test]
fn leaving_early_is_told() {
    let errors = others_see(drop);
    let why = "it left (it was dropped)".to_owned();
    assert_eq!(errors, vec![GroupError::RankFailed { rank: 1, why }; 2]);
}

#[test]
fn an_abort_is_told_and_the_rank_that_aborts_cannot_go_on_either() {
    let errors = others_see(|rank| {
        rank.abort("out of data");
        rank.abort("a second reason");
        assert!(reduce(&rank).is_err());
    });
    let why = "out of data".to_owned();
    assert_eq!(errors, vec![GroupError::RankFailed { rank: 1, why }; 2]);
    assert!(errors[0].to_string().contains("rank 1 failed: out of data"));
}

#[test]
fn leaving_after_the_last_call_is_no_failure() {
    for _ in 0..100 {
        let results = on_ranks(group(3), |rank| reduce(&rank));
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
}

#[test]
fn different_calls_are_an_error_on_all_ranks_and_the_group_goes_on() {
    type Call = fn(&ThreadRank) -> Result<()>;
    let calls: [(Call, &str); 7] = [
        (|rank| rank.all_reduce(Values::F32(&mut [0.; 3]), Reduce::Sum), "all_reduce (sum of 3 f32)"),
        (|rank| rank.all_reduce(Values::F32(&mut [0.; 4]), Reduce::Sum), "all_reduce (sum of 4 f32)"),
        (|rank| rank.all_reduce(Values::F32(&mut [0.; 3]), Reduce::Max), "all_reduce (maximum of 3 f32)"),
        (|rank| rank.all_reduce(Values::F64(&mut [0.; 3]), Reduce::Sum), "all_reduce (sum of 3 f64)"),
        (|rank| rank.all_reduce(Values::U64(&mut [0; 3]), Reduce::Sum), "all_reduce (sum of 3 u64)"),
        (|rank| rank.broadcast(1, &mut vec![1]), "broadcast (from rank 1)"),
        (|rank| rank.barrier(), "barrier"),
    ];
    on_ranks(group(3), |rank| {
        for (i, (call, name)) in calls.iter().enumerate() {
            for (other, other_name) in calls.iter().skip(i + 1) {
                let mine = if rank.rank() == 2 { other } else { call };
                let expected = GroupError::Mismatch {
                    rank: 0,
                    call: (*name).to_owned(),
                    other: 2,
                    other_call: (*other_name).to_owned(),
                };
                assert_eq!(group_error(mine(&rank)), expected);
            }
            call(&rank).unwrap();
        }
    });
}

#[test]
fn a_refused_reduction_changes_nothing() {
    on_ranks(group(2), |rank| {
        let mut values = vec![1f32; 3 + rank.rank()];
        assert!(rank.all_reduce(Values::F32(&mut values), Reduce::Sum).is_err());
        assert!(values.iter().all(|&x| x == 1.));
    });
}

#[test]
fn a_root_that_does_not_exist_is_an_error_on_all_ranks_and_the_group_goes_on() {
    on_ranks(group(2), |rank| {
        let mut bytes = vec![7];
        let error = group_error(rank.broadcast(2, &mut bytes));
        assert_eq!((error, bytes), (GroupError::NoMember { rank: 2, size: 2 }, vec![7]));
        reduce(&rank).unwrap();
    });
}

#[test]
fn a_rank_that_never_calls_is_named_when_the_time_is_over() {
    let mut ranks = Threads::group_with_timeout(3, Duration::from_millis(50));
    let absent = ranks.remove(1);
    let errors = on_ranks(ranks, |rank| group_error(reduce(&rank)));
    for error in errors {
        match error {
            GroupError::TimedOut { missing, waited, .. } => {
                assert!(missing.contains(&1) && waited >= Duration::from_millis(50), "{missing:?}");
            }
            // The one rank was dropped before the other came.
            GroupError::RankFailed { rank, .. } => assert_ne!(rank, 1),
            other => panic!("{other}"),
        }
    }
    assert!(reduce(&absent).is_err(), "the group is over");
}

#[test]
fn a_failure_in_one_group_leaves_another_alone() {
    let mut other = group(2);
    let errors = others_see(drop);
    assert_eq!(errors.len(), 2);
    let last = other.pop().unwrap();
    let first = other.pop().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| reduce(&last).unwrap());
        reduce(&first).unwrap();
    });
}
