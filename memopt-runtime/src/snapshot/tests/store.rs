use super::super::{Saved, Snapshot, SnapshotError, Store};
use crate::Error;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;

fn of_step(step: u64) -> Snapshot {
    let mut snapshot = Snapshot::new();
    snapshot.set("step", &step).unwrap();
    snapshot
}

#[test]
fn the_last_ones_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("a/b"), 2).unwrap();
    assert!(store.latest().unwrap().found.is_none());
    for step in [3, 9, 10, 123_456_789_012] {
        let Saved { path, not_deleted, .. } = store.save(step, &of_step(step)).unwrap();
        assert!(path == store.path(step) && not_deleted.is_empty());
        let (found, snapshot) = store.latest().unwrap().found.unwrap();
        assert_eq!((found, snapshot.get::<u64>("step").unwrap()), (step, step));
    }
    assert_eq!(store.steps().unwrap(), [10, 123_456_789_012]);
    assert!(store.path(10).ends_with("a/b/step-00000010.memopt"));
    assert!(matches!(Store::open(folder.path(), 0), Err(Error::Snapshot(SnapshotError::KeepsNone))));
}

#[test]
fn damaged_ones_are_passed_over_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 9).unwrap();
    (1..=5).for_each(|step| drop(store.save(step, &of_step(step)).unwrap()));
    fs::write(store.path(5), "").unwrap();
    let bytes = fs::read(store.path(4)).unwrap();
    fs::write(store.path(4), &bytes[..bytes.len() - 1]).unwrap();
    fs::remove_file(store.path(3)).unwrap();
    fs::create_dir(store.path(3)).unwrap();
    let latest = store.latest().unwrap();
    assert_eq!(latest.found.unwrap().0, 2);
    let skipped: Vec<_> = latest.skipped.iter().map(|skipped| skipped.path.clone()).collect();
    assert_eq!(skipped, [5, 4, 3].map(|step| store.path(step)));
    let kinds = latest.skipped.iter().map(|skipped| match &skipped.why {
        Error::Snapshot(SnapshotError::Damaged { .. }) => "damaged",
        Error::Snapshot(SnapshotError::NotAFile { .. }) => "no file",
        other => panic!("{other}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["damaged", "damaged", "no file"]);
    // The next save of the step mends it.
    store.save(5, &of_step(5)).unwrap();
    assert_eq!(store.latest().unwrap().found.unwrap().0, 5);
}

#[test]
fn a_failed_save_deletes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 1).unwrap();
    store.save(1, &of_step(1)).unwrap();
    let mut unwritable = of_step(2);
    let deep = (0..200).fold(serde_json::Value::Null, |inner, _| vec![inner].into());
    unwritable.state.insert("deep".into(), deep);
    assert!(store.save(2, &unwritable).is_err());
    assert_eq!(store.latest().unwrap().found.unwrap().0, 1);
}

#[test]
fn what_cannot_be_deleted_is_said_and_the_new_one_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 1).unwrap();
    fs::create_dir(store.path(1)).unwrap();
    let saved = store.save(2, &of_step(2)).unwrap();
    assert_eq!(saved.not_deleted[0].path, store.path(1));
    assert_eq!(store.latest().unwrap().found.unwrap().0, 2);
}

#[test]
fn going_back_is_said_and_not_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 2).unwrap();
    [100, 200].into_iter().for_each(|step| drop(store.save(step, &of_step(step)).unwrap()));
    // The new one is of an earlier step: it is kept, and so are the later ones.
    store.save(50, &of_step(50)).unwrap();
    assert_eq!(store.steps().unwrap(), [50, 100, 200]);
    assert_eq!(store.delete_after(50).unwrap().len(), 2);
    assert_eq!(store.latest().unwrap().found.unwrap().0, 50);
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 1).unwrap();
    let others = ["step-1.memopt", "step-00000001.memopt.bak", "best.memopt", "step-+0000001.memopt"];
    others.into_iter().for_each(|name| fs::write(folder.path().join(name), "x").unwrap());
    store.save(7, &of_step(7)).unwrap();
    assert_eq!(store.steps().unwrap(), [7]);
    assert_eq!(folder.path().read_dir().unwrap().count(), 5);
    assert!(store.latest().unwrap().skipped.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Against the plain rule, over any sequence of steps.
    #[test]
    fn after_any_saves_the_last_of_each_are_there(
        steps in proptest::collection::vec(0u64..20, 1..12),
        keep in 1usize..4,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), keep).unwrap();
        let mut expected = BTreeSet::new();
        for step in steps {
            store.save(step, &of_step(step)).unwrap();
            expected.insert(step);
            while expected.range(..=step).count() > keep {
                expected.pop_first();
            }
            prop_assert_eq!(store.steps().unwrap(), expected.iter().copied().collect::<Vec<_>>());
            prop_assert!(store.steps().unwrap().contains(&step));
        }
    }
}
