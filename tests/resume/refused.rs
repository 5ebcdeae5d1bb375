//! Snapshots that are not gone on from.

use super::training::*;
use memopt::dist::Single;
use memopt::snapshot::{SnapshotError, Store};
use memopt::train::{Clip, Progress, TrainerConfig};
use memopt::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// A training that is done with its first epoch.
fn trained(folder: &Path) -> Setup {
    let mut setup = Setup::new(folder);
    setup.config.epochs = 1;
    setup.run(Arc::new(Single::new())).unwrap();
    setup
}

/// Goes on with another setup; nothing may have moved where that is refused.
fn resume(setup: &Setup) -> Result<()> {
    let folder = setup.config.folder.as_ref().unwrap();
    let mut trainer = setup.trainer(Arc::new(Single::new()))?;
    let before = trainer.accumulator().totals();
    let resumed = trainer.resume(folder);
    if resumed.is_err() {
        assert_eq!(trainer.accumulator().totals(), before);
        assert_eq!(trainer.model().session().calls(), 0);
        return resumed.map(|_| ());
    }
    trainer.fit(&setup.loader(), loss, evaluate).map(|_| ())
}

#[test]
fn another_configuration_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let setup = trained(folder.path());
    type Change = fn(&mut Setup);
    let changes: [(Change, &str); 8] = [
        (|setup| setup.config.accumulate = 2, "accumulate: 3 then, 2 now"),
        (|setup| setup.config.clip = Clip::Never, "clip: GlobalNorm(1.0) then, Never now"),
        (|setup| setup.config.schedule = None, "schedule: "),
        (|setup| setup.config.scaling = Some(Default::default()), "scaling: none then"),
        (|setup| setup.learning_rate = 0.5, "optimizer's learning_rate: 0.02 then, 0.5 now"),
        (|setup| setup.config.norms = memopt::train::NormMode::Frozen, "norms: PerMicro then, Frozen now"),
        (
            |setup| setup.config.settings = setup.config.settings.clone().with("data", "others"),
            "data: not there then, others now",
        ),
        (|setup| setup.carries_states = true, "states are carried: false then, true now"),
    ];
    for (change, says) in changes {
        let mut other = setup.clone();
        change(&mut other);
        let error = resume(&other).unwrap_err();
        assert!(matches!(error, Error::OtherConfiguration { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let other = Setup { plan: "block: tcgc-per-chunk:3", ..setup.clone() };
    let error = resume(&other).unwrap_err().to_string();
    assert!(error.contains("none then, `block: tcgc-per-chunk:3` now"), "{error}");
    resume(&setup).unwrap();
}

#[test]
fn another_model_or_order_of_samples_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = trained(folder.path());
    let error = resume(&Setup { channels: 8, ..setup.clone() }).unwrap_err();
    assert!(error.to_string().contains("another model"), "{error}");
    let mut other = Setup { batch_size: 4, ..setup.clone() };
    other.config.epochs = 2;
    let error = resume(&other).unwrap_err();
    assert!(matches!(error, Error::Data(_)), "{error}");
    assert!(error.to_string().contains("batch size: 3 then, 4 now"), "{error}");
}

#[test]
fn a_damaged_snapshot_is_passed_over_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, setup) = (folder.path().join("straight"), folder.path().join("damaged"));
    for folder in [&straight, &setup] {
        std::fs::create_dir(folder).unwrap();
    }
    let straight = Setup::new(&straight);
    straight.run(Arc::new(Single::new())).unwrap();
    let mut setup = Setup::new(&setup);
    setup.config.epochs = 2;
    setup.run(Arc::new(Single::new())).unwrap();

    let store = Store::open(setup.config.folder.as_ref().unwrap(), 1).unwrap();
    let steps = store.steps().unwrap();
    let (before, latest) = (steps[steps.len() - 2], steps[steps.len() - 1]);
    let mut bytes = std::fs::read(store.path(latest)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(store.path(latest), bytes).unwrap();

    setup.config.epochs = 3;
    let mut trainer = setup.trainer(Arc::new(Single::new())).unwrap();
    let resumed = trainer.resume(setup.config.folder.as_ref().unwrap()).unwrap().unwrap();
    assert_eq!((&resumed.path, resumed.totals.steps), (&store.path(before), before));
    assert_eq!(resumed.skipped.len(), 1);
    assert!(resumed.to_string().contains("passed over"), "{resumed}");
    trainer.fit(&setup.loader(), loss, evaluate).unwrap();
    assert_same(&straight, &setup);

    // Nothing is left that is whole.
    for step in store.steps().unwrap() {
        std::fs::write(store.path(step), "nonsense").unwrap();
    }
    let error = resume(&setup).unwrap_err().to_string();
    assert!(error.contains("is whole"), "{error}");
}

#[test]
fn a_folder_of_another_training_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let setup = trained(folder.path());
    let before = latest(&setup).0;
    let mut trainer = setup.trainer(Arc::new(Single::new())).unwrap();
    let error = trainer.fit(&setup.loader(), loss, evaluate).unwrap_err().to_string();
    assert!(error.contains("another training") && error.contains("resume"), "{error}");
    assert_eq!(latest(&setup).0, before);
}

#[test]
fn a_snapshot_of_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = trained(folder.path());
    let (_, mut snapshot) = latest(&setup);
    let path = folder.path().join("else.memopt");
    let refused = |snapshot: &memopt::snapshot::Snapshot| {
        snapshot.save(&path).unwrap();
        let mut trainer = setup.trainer(Arc::new(Single::new())).unwrap();
        trainer.resume(&path).unwrap_err()
    };
    let removed = snapshot.tensors.remove("variable.bn.running_mean").unwrap();
    let error = refused(&snapshot);
    assert!(matches!(&error, Error::StateMissing { name, .. } if name == "bn.running_mean"), "{error}");
    snapshot.tensors.insert("variable.bn.else".into(), removed.clone());
    snapshot.tensors.insert("variable.bn.running_mean".into(), removed);
    let error = refused(&snapshot);
    assert!(matches!(&error, Error::StateForeign { name, .. } if name == "bn.else"), "{error}");
    let progress = Progress::of(&snapshot).unwrap();
    assert_eq!(progress.position.epoch(), 1);
    snapshot.state.clear();
    let error = refused(&snapshot);
    assert!(matches!(error, Error::Snapshot(SnapshotError::Missing { .. })), "{error}");
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for config in [
        TrainerConfig { epochs: 0, ..Default::default() },
        TrainerConfig { accumulate: 0, ..Default::default() },
        TrainerConfig { save_every: Some(0), ..Default::default() },
        TrainerConfig { keep: 0, ..Default::default() },
        TrainerConfig { clip: Clip::Value(-1.), ..Default::default() },
        TrainerConfig { norms: memopt::train::NormMode::Synchronized, ..Default::default() },
    ] {
        let setup = Setup { config, ..Setup::new(folder.path()) };
        let error = setup.trainer(Arc::new(Single::new())).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Training { .. }), "{error}");
    }
}
