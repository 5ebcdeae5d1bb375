use super::super::{from_fn, DataError, Loader};
use crate::Error;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc};
use std::time::Duration;

/// Batches that are alive, and the most that were.
#[derive(Default)]
struct Alive {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Counted(Arc<Alive>);

impl Counted {
    fn new(alive: &Arc<Alive>) -> Self {
        let now = alive.now.fetch_add(1, SeqCst) + 1;
        alive.most.fetch_max(now, SeqCst);
        Counted(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, SeqCst);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_more_batches_are_alive_than_are_prefetched_and_in_use(
        threads in 0usize..5, prefetch in 0usize..4, size in 1usize..4, take in 1usize..30,
    ) {
        let (batches, samples) = (Arc::new(Alive::default()), Arc::new(Alive::default()));
        let (of_batch, of_sample) = (batches.clone(), samples.clone());
        let loader = Loader::new(from_fn(60, move |_| Ok(Counted::new(&of_sample))))
            .collate(move |samples: Vec<Counted>| {
                drop(samples);
                Ok(Counted::new(&of_batch))
            })
            .batch_size(size).threads(threads).prefetch(prefetch);
        for batch in loader.epoch(0).unwrap().take(take) {
            let batch = batch.unwrap();
            // Time to make more than it should.
            std::thread::sleep(Duration::from_micros(300));
            drop(batch);
        }
        // In use: 1. Without threads nothing is made ahead.
        let ahead = if threads == 0 { 0 } else { prefetch };
        prop_assert!(batches.most.load(SeqCst) <= ahead + 1, "{}", batches.most.load(SeqCst));
        prop_assert!(samples.most.load(SeqCst) <= ahead.max(1) * size);
        // All are gone, in the middle of an epoch too: the threads have ended.
        prop_assert_eq!((batches.now.load(SeqCst), samples.now.load(SeqCst)), (0, 0));
        prop_assert!(Arc::strong_count(&batches) == 2 && Arc::strong_count(&samples) == 2);
    }
}

#[test]
fn as_many_batches_as_asked_for_are_made_ahead() {
    let of_batch = Arc::new(AtomicUsize::new(0));
    let counter = of_batch.clone();
    let loader =
        Loader::new((0..20).collect::<Vec<i32>>()).threads(2).prefetch(3).collate(move |x: Vec<i32>| {
            counter.fetch_add(1, SeqCst);
            Ok(x)
        });
    let mut batches = loader.epoch(0).unwrap();
    for taken in 0..4 {
        // Waits as long as it takes: a loader that makes fewer hangs here.
        while of_batch.load(SeqCst) < taken + 3 {
            std::thread::yield_now();
        }
        assert_eq!(of_batch.load(SeqCst), taken + 3);
        batches.next().unwrap().unwrap();
    }
}

/// One sample waits for another of the same batch: only threads that share a batch come through.
#[test]
fn threads_share_the_samples_of_a_batch() {
    let barrier = Arc::new(std::sync::Barrier::new(3));
    let get = move |index: usize| {
        barrier.wait();
        Ok(index)
    };
    for prefetch in [0, 1] {
        let loader = Loader::new(from_fn(6, get.clone())).batch_size(3).threads(3).prefetch(prefetch);
        let batches = loader.collate(|samples: Vec<usize>| Ok(samples)).epoch(0).unwrap();
        assert_eq!(batches.map(|batch| batch.unwrap().data).collect::<Vec<_>>(), [[0, 1, 2], [3, 4, 5]]);
    }
}

#[test]
fn dropping_waits_for_the_samples_at_hand_and_begins_no_more() {
    let (enter, entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let may_leave = parking_lot::Mutex::new(may_leave);
    let started = Arc::new(AtomicUsize::new(0));
    let counter = started.clone();
    let get = move |index: usize| {
        counter.fetch_add(1, SeqCst);
        enter.send(index)?;
        // Until the test lets it go; then each takes a moment.
        let _ = may_leave.lock().recv();
        std::thread::sleep(Duration::from_millis(1));
        Ok(index)
    };
    let loader = Loader::new(from_fn(1000, get)).threads(2).prefetch(1000).collate(|x: Vec<usize>| Ok(x));
    let batches = loader.epoch(0).unwrap();
    entered.iter().take(2).for_each(drop);
    // Both threads are in a sample, and leave it while the drop waits for them.
    let releases = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(leave);
    });
    drop(batches);
    releases.join().unwrap();
    // Not the thousand that they would have begun; and no thread is left that could begin more.
    let begun = started.load(SeqCst);
    assert!((2..500).contains(&begun), "{begun}");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(started.load(SeqCst), begun);
    drop(loader);
}

#[test]
fn a_panic_that_cannot_be_caught_with_a_sample_is_reported_and_nothing_hangs() {
    /// Panics when it is dropped by a thread of the loader.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            let loader = std::thread::current().name().is_some_and(|name| name.starts_with("memopt-data"));
            assert!(!loader || std::thread::panicking(), "dropped");
        }
    }
    // The error of the first sample makes the batch drop the second one.
    let get = |index: usize| if index % 2 == 1 { Err("no".into()) } else { Ok(Bomb) };
    let loader = Loader::new(from_fn(2, get)).batch_size(2).threads(2).collate(|x: Vec<Bomb>| Ok(x.len()));
    let error = loader.epoch(0).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Data(DataError::ThreadPanicked)), "{error}");
    assert!(loader.epoch(1).unwrap().next().unwrap().is_err());
}

#[test]
fn threads_beyond_the_samples_do_no_harm() {
    let loader = Loader::new(vec![1u32, 2]).threads(16).prefetch(50);
    for epoch in 0..20 {
        assert_eq!(loader.epoch(epoch).unwrap().map(Result::unwrap).count(), 2);
    }
    // Not begun, and not finished.
    drop(loader.epoch(0).unwrap());
}
