//! Snapshots are written from where the tensors are, and are in memory once when they are read.

#![allow(clippy::unwrap_used)]

use candle_core::{Device, Tensor};
use memopt_runtime::memory::{CountingAllocator, Scope};
use memopt_runtime::snapshot::Snapshot;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

/// Buffers, the header, what the harness does meanwhile.
const BESIDE: u64 = 3_000_000;

#[test]
fn a_file_is_not_in_memory_twice() {
    const TENSORS: usize = 4;
    const BYTES: usize = 16_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let mut snapshot = Snapshot::new();
    for i in 0..TENSORS {
        let x = Tensor::full(i as f32, (1000, BYTES / 4000), &Device::Cpu).unwrap();
        snapshot.tensors.insert(i.to_string(), x);
    }

    let scope = Scope::enter("save").unwrap();
    snapshot.save(&path).unwrap();
    let peak = scope.finish().peak_above_start() as u64;
    assert!(peak < BESIDE, "saving took {peak} bytes");

    let scope = Scope::enter("load").unwrap();
    let again = Snapshot::load(&path).unwrap();
    let bytes = scope.finish();
    let whole = (TENSORS * BYTES) as u64;
    let peak = bytes.peak_above_start() as u64;
    assert!((whole..whole + BESIDE).contains(&peak), "loading took {peak} bytes");
    drop(again);

    // What is not in row-major order is copied, one tensor at a time.
    for x in snapshot.tensors.values_mut() {
        *x = x.t().unwrap();
    }
    let scope = Scope::enter("save transposed").unwrap();
    snapshot.save(&path).unwrap();
    let peak = scope.finish().peak_above_start() as u64;
    assert!(peak < BYTES as u64 + BESIDE, "saving took {peak} bytes");
}
