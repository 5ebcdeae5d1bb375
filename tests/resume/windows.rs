//! Interruptions by errors, within windows and behind steps.

use super::training::*;
use memopt::checkpoint::Planned;
use memopt::dist::Single;
use memopt::train::{AdamW, Pending, Trainer};
use memopt::Error;
use std::sync::Arc;

/// Trains until a loss fails.
fn fails_at(trainer: &mut Trainer<Planned<Net>, AdamW>, setup: &Setup, micro_batch: usize) {
    let mut seen = 0;
    let failing = |net: &Planned<Net>, batch: &_| {
        seen += 1;
        match seen > micro_batch {
            true => Err(Error::Loss { what: "none today".into() }),
            false => loss(net, batch),
        }
    };
    let error = trainer.fit(&setup.loader(), failing, evaluate).unwrap_err();
    assert!(matches!(error, Error::Loss { .. }), "{error}");
}

fn group() -> Arc<Single> {
    Arc::new(Single::new())
}

/// Trap: saved in the middle of a window, the gradients would be lost.
#[test]
fn a_snapshot_within_a_window_is_refused_unless_it_includes_the_gradients() {
    for carries_states in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = |name: &str| {
            let folder = folder.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Setup { carries_states, ..Setup::new(&folder) }
        };
        let straight = in_folder("straight");
        straight.run(group()).unwrap();

        let setup = in_folder("interrupted");
        let mut trainer = setup.trainer(group()).unwrap();
        let path = folder.path().join("within.memopt");
        assert!(trainer.save(&path, Pending::Included).is_err(), "nothing was trained");
        fails_at(&mut trainer, &setup, 12); // in the second epoch: they have 8 (with states 7), 3 a step
        assert!(trainer.accumulator().pending() > 0);
        let error = trainer.save(&path, Pending::Refused).unwrap_err();
        assert!(matches!(error, Error::MidAccumulation { .. }), "{error}");
        assert!(!path.exists());
        trainer.save(&path, Pending::Included).unwrap();
        drop(trainer);

        // In another folder: that of the first one has later ones than its own.
        let mut second = in_folder("second");
        second.config.log = setup.config.log.clone();
        let mut trainer = second.trainer(group()).unwrap();
        let resumed = trainer.resume(&path).unwrap().unwrap();
        assert_eq!((resumed.path, resumed.epoch), (path, 1));
        assert!(trainer.accumulator().pending() > 0);
        trainer.fit(&second.loader(), loss, evaluate).unwrap();
        assert_same(&straight, &second);
    }
}

#[test]
fn after_an_error_it_goes_on_as_if_there_had_been_none() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, setup) = (folder.path().join("straight"), folder.path().join("failing"));
    for folder in [&straight, &setup] {
        std::fs::create_dir(folder).unwrap();
    }
    let (straight, setup) = (Setup::new(&straight), Setup::new(&setup));
    straight.run(group()).unwrap();
    let mut trainer = setup.trainer(group()).unwrap();
    for at in [4, 0, 7] {
        fails_at(&mut trainer, &setup, at);
    }
    let summary = trainer.fit(&setup.loader(), loss, evaluate).unwrap();
    assert_eq!(summary.totals.steps, 9);
    assert_same(&straight, &setup);
    // All is done.
    let again = trainer.fit(&setup.loader(), loss, evaluate).unwrap();
    assert_eq!((again.totals, again.evaluations.len()), (summary.totals, 0));
}

/// More epochs than first asked for, by another plan: plans are lossless.
#[test]
fn a_training_that_is_done_can_go_on_for_longer_and_under_another_plan() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, setup) = (folder.path().join("straight"), folder.path().join("longer"));
    for folder in [&straight, &setup] {
        std::fs::create_dir(folder).unwrap();
    }
    let straight = Setup::new(&straight);
    straight.run(group()).unwrap();
    let mut setup = Setup::new(&setup);
    for (epochs, plan) in [(1, ""), (2, "block: tcgc:3"), (3, "block: ccgc:2 bit")] {
        (setup.config.epochs, setup.plan) = (epochs, plan);
        setup.run(group()).unwrap();
    }
    assert_same(&straight, &setup);
}
