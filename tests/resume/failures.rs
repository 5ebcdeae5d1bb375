//! Ranks that fail, or differ.

use super::training::*;
use memopt::checkpoint::Planned;
use memopt::dist::{Communicator, GroupError, Threads};
use memopt::{Error, Result};
use std::sync::Arc;

/// Runs ranks in threads; what each gives.
fn group(ranks: usize, run: impl Fn(Arc<dyn Communicator>) -> Result<()> + Sync) -> Vec<Result<()>> {
    std::thread::scope(|scope| {
        let run = &run;
        let spawn = |rank| scope.spawn(move || run(Arc::new(rank)));
        let threads: Vec<_> = Threads::group(ranks).into_iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_rank_that_fails_ends_the_others_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path());
    for in_evaluation in [false, true] {
        let mut setup = setup.clone();
        (setup.config.folder, setup.config.log) = (None, None);
        let ends = group(3, |communicator| {
            let fails = communicator.rank() == 1;
            let mut trainer = setup.trainer(communicator)?;
            let mut seen = 0;
            let failing = |net: &Planned<Net>, batch: &_| {
                seen += 1;
                match fails && !in_evaluation && seen == 4 {
                    true => Err(Error::Loss { what: "out of luck".into() }),
                    false => loss(net, batch),
                }
            };
            let evaluate = |net: &Planned<Net>| match fails && in_evaluation {
                true => Err(Error::Loss { what: "out of luck".into() }),
                false => evaluate(net),
            };
            trainer.fit(&setup.loader(), failing, evaluate).map(|_| ())
        });
        assert!(matches!(ends[1], Err(Error::Loss { .. })), "{:?}", ends[1]);
        for other in [&ends[0], &ends[2]] {
            let Err(Error::Group(GroupError::RankFailed { rank: 1, why })) = other else {
                panic!("{other:?}");
            };
            assert!(why.contains("out of luck"), "{why}");
        }
    }
}

#[test]
fn ranks_that_are_set_up_in_other_ways_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let ends = group(2, |communicator| {
        let mut setup = Setup::new(folder.path());
        if communicator.rank() == 1 {
            setup.plan = "block: tcgc:3";
        }
        let mut trainer = setup.trainer(communicator)?;
        trainer.fit(&setup.loader(), loss, evaluate).map(|_| ())
    });
    for end in ends {
        let Err(Error::Group(GroupError::Refused { rank: 1, what })) = &end else { panic!("{end:?}") };
        assert!(what.contains("plan"), "{what}");
    }
}

#[test]
fn a_snapshot_of_two_ranks_is_not_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(folder.path());
    setup.config.epochs = 1;
    setup.run_ranks(2);
    let error = setup.run(Arc::new(memopt::dist::Single::new())).unwrap_err().to_string();
    assert!(error.contains("ranks: 2 then, 1 now"), "{error}");
}
