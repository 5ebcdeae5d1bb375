//! Writers of snapshots that are killed, or whose disk is full, at any moment.
//!
//! The test's program runs itself again as the writer.

#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use candle_core::{Device, Tensor};
use memopt_runtime::snapshot::{Snapshot, Store};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Names the folder of the writer.
const FOLDER: &str = "MEMOPT_TEST_SNAPSHOTS";

/// Large enough for kills to come in the middle.
const ELEMENTS: usize = 300_000;

fn of_step(step: u64) -> Snapshot {
    let mut snapshot = Snapshot::new();
    snapshot.tensors.insert("x".into(), Tensor::full(step as u32, ELEMENTS, &Device::Cpu).unwrap());
    snapshot.tensors.insert("y".into(), Tensor::new(step as i64, &Device::Cpu).unwrap());
    snapshot.set("step", &step).unwrap();
    snapshot
}

fn check(step: u64, snapshot: &Snapshot) {
    assert_eq!(snapshot.get::<u64>("step").unwrap(), step);
    let x = snapshot.tensor("x").unwrap().to_vec1::<u32>().unwrap();
    assert!(x.len() == ELEMENTS && x.iter().all(|&x| x == step as u32));
    assert_eq!(snapshot.tensor("y").unwrap().to_scalar::<i64>().unwrap(), step as i64);
}

/// Does nothing, but in the program that the tests start: there it saves until it is killed.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = Store::open(folder, 2).unwrap();
    let mut step = store.latest().unwrap().found.map_or(0, |(step, _)| step);
    loop {
        step += 1;
        if store.save(step, &of_step(step)).is_err() {
            std::process::exit(3);
        }
    }
}

/// Starts the writer; `before` is what a shell does first.
fn start(folder: &Path, before: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("{before} exec \"$0\" --exact writer --nocapture")])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn parts(folder: &Path) -> usize {
    let names = folder.read_dir().unwrap().map(|file| file.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".part")).count()
}

#[test]
fn after_every_kill_the_latest_one_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 2).unwrap();
    let (mut last, mut interrupted) = (0, 0);
    for round in 0..100u64 {
        let mut child = start(folder.path(), "");
        // Some moments after it has begun, and some while it starts.
        let begun = || store.steps().unwrap().last().is_some_and(|&step| step > last);
        while round % 8 != 0 && !begun() {
            assert!(child.try_wait().unwrap().is_none(), "the writer ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 7919 % 12_000));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        interrupted += usize::from(parts(folder.path()) > 0);

        let latest = store.latest().unwrap();
        assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
        match latest.found {
            Some((step, snapshot)) => {
                assert!(step >= last);
                check(step, &snapshot);
                last = step;
            }
            None => assert_eq!(last, 0),
        }
    }
    assert!(last >= 80 && interrupted > 0, "{last} steps, {interrupted} kills within a save");
    // What they left is gone after the next save, and what they came not to delete too.
    store.save(last + 1, &of_step(last + 1)).unwrap();
    assert_eq!((parts(folder.path()), store.steps().unwrap().len()), (0, 2));
}

/// The system refuses files beyond a size, as it refuses to write to a full disk.
#[test]
fn a_disk_that_is_full_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 2).unwrap();
    store.save(1, &of_step(1)).unwrap();
    let status = start(folder.path(), "trap '' XFSZ; ulimit -f 100;").wait().unwrap();
    assert_eq!(status.code(), Some(3));
    let latest = store.latest().unwrap();
    check(1, &latest.found.unwrap().1);
    assert_eq!((store.steps().unwrap(), parts(folder.path())), (vec![1], 0));
}
