//! A training that is killed again and again ends as one that is not.
//!
//! The test's program runs itself again as the training.
#![cfg(unix)]

use super::training::*;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names the folder of the training, and its number of ranks.
const FOLDER: &str = "MEMOPT_TEST_TRAINING";
const RANKS: &str = "MEMOPT_TEST_RANKS";

fn long(folder: &Path) -> Setup {
    let mut setup = Setup::new(folder);
    setup.config.epochs = 20;
    setup
}

/// Does nothing, but in the program that the tests start: there it trains until it is killed, or done.
#[test]
fn trains() {
    let (Some(folder), Ok(ranks)) = (std::env::var_os(FOLDER), std::env::var(RANKS)) else { return };
    long(Path::new(&folder)).run_ranks(ranks.parse().unwrap());
}

fn start(folder: &Path, ranks: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::trains", "--nocapture"])
        .env(FOLDER, folder)
        .env(RANKS, ranks.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_killed_and_ends_the_same(ranks: usize, kills: u64) {
    let folder = tempfile::tempdir().unwrap();
    let (straight, killed) = (folder.path().join("straight"), folder.path().join("killed"));
    for folder in [&straight, &killed] {
        std::fs::create_dir(folder).unwrap();
    }
    let (straight, setup) = (long(&straight), long(&killed));
    let began = Instant::now();
    straight.run_ranks(ranks);
    let whole = began.elapsed();

    let log = setup.config.log.as_ref().unwrap();
    let length = || log.metadata().map_or(0, |about| about.len());
    let mut random = super::common::Values::new(ranks as u64);
    let mut done = 0;
    for round in 0..kills {
        let before = length();
        let mut child = start(&killed, ranks);
        // Some while they start, most within their steps.
        let deadline = Instant::now() + Duration::from_secs(10);
        while round % 6 != 5 && length() == before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(whole.mul_f64(random.next().abs() / kills as f64));
        done += u64::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
    }
    assert!(done >= kills / 2, "only {done} of {kills} kills came before the end");
    assert!(start(&killed, ranks).wait().unwrap().success());
    assert_same(&straight, &setup);
}

#[test]
fn one_rank() {
    is_killed_and_ends_the_same(1, 12);
}

#[test]
fn two_ranks() {
    is_killed_and_ends_the_same(2, 8);
}
