//! The counting allocator and what is measured with it, in a process that has it installed.
//!
//! All checks are one test: whenever a test ends, the harness allocates in its own thread, and would disturb the
//! exact numbers of another. Checks whose numbers depend on the order of threads hold them apart by barriers.

#![allow(clippy::unwrap_used)]

use memopt_runtime::memory::{self, CountingAllocator, MemoryError, Scope, ThreadScope, Timeline};
use std::cell::RefCell;
use std::hint::black_box;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

#[test]
fn counting_allocator() {
    end_process_on_panic();
    wait_until_quiet();
    growing_and_shrinking();
    zeroed();
    over_aligned();
    peak_and_reset();
    freed_in_another_thread();
    threads_that_end();
    nested_scopes();
    overlapping_scopes();
    scope_that_changes_threads();
    concurrent_scopes();
    scopes_run_out();
    long_lived_scope();
    thread_scopes();
    thread_scopes_run_out();
    hammered_by_threads();
    scopes_in_turmoil();
    marks_without_timeline();
    timeline_of_all_threads();
    timeline_below_its_start();
    timeline_does_not_show_itself();
    one_timeline_per_thread();
    mark_whose_name_panics();
    curve_of_a_step();
}

/// A thread that fails would leave the others of its check waiting for it.
fn end_process_on_panic() {
    panic::set_hook(Box::new(|panicked| {
        // Not by `eprintln`: the harness would capture it and not come to show it.
        let _ = writeln!(io::stderr(), "{panicked}");
        process::exit(101);
    }));
}

/// Until the thread of the harness waits for the test, and what is allocated once for threads is there.
fn wait_until_quiet() {
    thread::spawn(|| ()).join().unwrap();
    let mut before = live();
    let mut quiet = 0;
    while quiet < 20 {
        thread::sleep(Duration::from_millis(2));
        let now = live();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
}

fn live() -> usize {
    memory::live().unwrap()
}

fn thread_live() -> isize {
    memory::thread_live().unwrap()
}

/// A block of that many bytes that the optimizer leaves alone.
fn block(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(bytes))
}

fn growing_and_shrinking() {
    let (start, thread_start) = (live(), thread_live());
    let mut bytes = block(1000);
    assert_eq!(live() - start, 1000);
    bytes.reserve_exact(5000);
    assert_eq!(live() - start, 5000);
    bytes.extend([7; 100]);
    bytes.shrink_to_fit();
    assert_eq!(live() - start, 100);
    assert_eq!(thread_live() - thread_start, 100);
    assert_eq!(bytes, [7; 100]);
    bytes.reserve_exact(3_000_000);
    assert_eq!(live() - start, 3_000_100);
    assert_eq!(bytes, [7; 100]);
    drop(bytes);
    assert_eq!((live(), thread_live()), (start, thread_start));
}

fn zeroed() {
    let start = live();
    for numbers in [1, 1000, 300_000] {
        let zeros = black_box(vec![0_u64; numbers]);
        assert_eq!(live() - start, 8 * numbers);
        assert!(zeros.iter().all(|&zero| zero == 0));
    }
    assert_eq!(live(), start);
}

fn over_aligned() {
    #[repr(align(4096))]
    struct Page([u8; 4096]);

    let start = live();
    let mut pages = Vec::with_capacity(1);
    for number in 0..9 {
        pages.push(Page([number; 4096]));
        assert_eq!(live() - start, 4096 * pages.capacity());
        assert_eq!(pages.as_ptr() as usize % 4096, 0);
    }
    pages.truncate(3);
    pages.shrink_to_fit();
    assert_eq!(live() - start, 3 * 4096);
    assert!((0..).zip(&pages).all(|(number, page)| page.0 == [number; 4096]));
    drop(pages);
    assert_eq!(live(), start);
}

fn peak_and_reset() {
    let start = live();
    drop(block(50_000_000));
    assert!(memory::peak().unwrap() >= start + 50_000_000);
    let scope = Scope::enter("around the reset").unwrap();
    drop(block(2000));
    memory::reset_peak();
    assert_eq!(memory::peak(), Some(start));
    drop((block(700), block(300)));
    drop(block(600));
    assert_eq!(memory::peak(), Some(start + 1000));
    assert_eq!(scope.finish().peak_above_start(), 2000);
}

fn freed_in_another_thread() {
    let (start, thread_start) = (live(), thread_live());
    let made = thread::spawn(|| {
        let before = thread_live();
        let bytes = block(123_456);
        assert_eq!(thread_live() - before, 123_456);
        bytes
    });
    let bytes = made.join().unwrap();
    assert_eq!(live() - start, 123_456);
    let before = thread_live();
    drop(bytes);
    assert_eq!(thread_live() - before, -123_456);
    assert_eq!(live(), start);
    assert!(thread_live() < thread_start);
}

fn threads_that_end() {
    struct Late(Vec<u8>);
    impl Drop for Late {
        fn drop(&mut self) {
            assert_eq!(self.0.capacity(), 10_000);
            let before = thread_live();
            let late = block(500);
            assert_eq!(thread_live() - before, 500);
            memory::mark("while the thread ends");
            let timeline = Timeline::start().unwrap();
            let scope = ThreadScope::enter("while the thread ends").unwrap();
            drop(late);
            assert_eq!(scope.finish().retained(), -500);
            drop(timeline.finish());
        }
    }
    thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });

    let start = live();
    for _ in 0..10 {
        thread::spawn(|| LATE.set(Some(Late(block(10_000))))).join().unwrap();
        assert_eq!(live(), start);
    }
}

fn nested_scopes() {
    let outer = Scope::enter("outer").unwrap();
    let kept = block(100);
    let inner = Scope::enter(String::from("inner")).unwrap();
    drop(block(5000));
    assert_eq!(inner.peak(), live() + 5000);
    let inner = inner.finish();
    drop(block(1000));
    let again = Scope::enter("again").unwrap();
    drop(block(10));
    drop(kept);
    let again = again.finish();
    let outer = outer.finish();

    assert_eq!((inner.peak_above_start(), inner.retained()), (5000, 0));
    assert_eq!((again.peak_above_start(), again.retained()), (10, -100));
    // The name of the inner scope was alive at its peak.
    assert_eq!((outer.peak_above_start(), outer.retained()), (5100 + "inner".len(), "inner".len() as isize));
    assert_eq!((outer.name.as_ref(), inner.name.as_ref()), ("outer", "inner"));
}

fn overlapping_scopes() {
    let first = Scope::enter("first").unwrap();
    drop(block(3000));
    let second = Scope::enter("second").unwrap();
    let kept = block(500);
    let first = first.finish();
    drop(block(1000));
    let third = Scope::enter("third").unwrap();
    drop(kept);
    drop(block(100));
    let second = second.finish();
    let third = third.finish();
    assert_eq!((first.peak_above_start(), first.retained()), (3000, 500));
    assert_eq!((second.peak_above_start(), second.retained()), (1500, 0));
    assert_eq!((third.peak_above_start(), third.retained()), (0, -500));
}

fn scope_that_changes_threads() {
    let scope = Scope::enter("here and there").unwrap();
    let measured = thread::spawn(|| {
        drop(block(1_000_000));
        scope.finish()
    });
    assert!((1_000_000..1_010_000).contains(&measured.join().unwrap().peak_above_start()));
}

/// Threads hold their scopes apart by barriers; each sees all bytes of its own period and no others.
fn concurrent_scopes() {
    const THREADS: usize = 4;
    let step = Barrier::new(THREADS);
    let (step, start) = (&step, live());
    let work = |index: usize| {
        move || {
            for round in 0..THREADS {
                step.wait();
                // Each round begins with the scope of another thread.
                for turn in 0..THREADS {
                    step.wait();
                    if turn == (index + round) % THREADS {
                        let scope = Scope::enter("turn").unwrap();
                        drop(block(1000 * (index + 1)));
                        assert_eq!(scope.finish().peak_above_start(), 1000 * (index + 1));
                    }
                }
                step.wait();
                let scope = Scope::enter("together").unwrap();
                step.wait();
                let held = block(10_000 * (index + 1));
                step.wait();
                drop(held);
                step.wait();
                let together = scope.finish();
                step.wait();
                assert_eq!((together.peak_above_start(), together.retained()), (100_000, 0));
            }
        }
    };
    thread::scope(|threads| {
        let handles: Vec<_> = (0..THREADS).map(|index| threads.spawn(work(index))).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
    assert_eq!(live(), start);
}

fn scopes_run_out() {
    let mut scopes = Vec::with_capacity(Scope::LIMIT);
    for index in 0..Scope::LIMIT {
        scopes.push(Scope::enter("one of many").unwrap());
        drop(block(1000 - index));
    }
    let too_many = Some(MemoryError::TooManyScopes { limit: Scope::LIMIT });
    assert_eq!(Scope::enter("one too many").err(), too_many);
    assert_eq!(Timeline::start().err(), too_many);
    drop(scopes.swap_remove(5));
    let timeline = Timeline::start().unwrap();
    assert_eq!(Scope::enter("one too many").err(), too_many);
    drop(timeline);
    for scope in scopes {
        let bytes = scope.finish();
        assert!((1000 - Scope::LIMIT..=30_000).contains(&bytes.peak_above_start()));
    }
    for _ in 0..1000 {
        drop(Scope::enter("dropped").unwrap());
    }
}

/// Epochs wrap after a million periods; a scope is right however many began after it.
fn long_lived_scope() {
    let scope = Scope::enter("long-lived").unwrap();
    for _ in 0..10 {
        for _ in 0..150_000 {
            drop(Scope::enter("short").unwrap());
        }
        let before = scope.peak();
        drop(block(before - live() + 1000));
        assert_eq!(scope.peak(), before + 1000);
    }
    assert_eq!(scope.finish().peak_above_start(), 10_000);
}

fn thread_scopes() {
    let outer = ThreadScope::enter("outer").unwrap();
    let kept = block(100);
    let inner = ThreadScope::enter("inner").unwrap();
    drop(block(2000));
    let other = thread::spawn(|| {
        let scope = ThreadScope::enter("other").unwrap();
        drop(block(1_000_000));
        (scope.finish(), block(50_000))
    });
    let (other, made_elsewhere) = other.join().unwrap();
    let elsewhere = ThreadScope::enter("elsewhere").unwrap();
    // Overlaps: the outer one ends first.
    let outer = outer.finish();
    drop(made_elsewhere);
    drop(kept);
    let elsewhere = elsewhere.finish();
    let inner = inner.finish();

    // Starting a thread takes a few hundred bytes here, which its end gives back there.
    assert_eq!(other.peak_above_start(), 1_000_000);
    assert!((2000..10_000).contains(&inner.peak_above_start()), "{inner:?}");
    assert_eq!(outer.peak_above_start(), inner.peak_above_start() + 100);
    assert_eq!((elsewhere.peak_above_start(), elsewhere.retained()), (0, -50_100));
    assert!(elsewhere.to_string().ends_with("-0.050 MB retained, in its thread"), "{elsewhere}");
}

fn thread_scopes_run_out() {
    let scopes: Vec<_> =
        (0..ThreadScope::LIMIT).map(|_| ThreadScope::enter("one of many").unwrap()).collect();
    let too_many = Some(MemoryError::TooManyThreadScopes { limit: ThreadScope::LIMIT });
    assert_eq!(ThreadScope::enter("one too many").err(), too_many);
    thread::spawn(|| drop(ThreadScope::enter("another thread").unwrap())).join().unwrap();
    drop(scopes);
    for _ in 0..1000 {
        drop(ThreadScope::enter("dropped").unwrap());
    }
}

/// Small and large sizes in no obvious order.
fn sizes(seed: usize) -> impl Iterator<Item = usize> {
    let mut state = seed as u64 + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (state >> 33) as usize % 4096
    })
}

fn hammered_by_threads() {
    const THREADS: usize = 8;
    const EACH: usize = 3 * 4096;
    const ROUNDS: usize = 3000;
    let step = Barrier::new(THREADS + 1);
    let seen = AtomicUsize::new(0);
    let hammer = |index: usize| {
        let (step, seen) = (&step, &seen);
        move || {
            step.wait();
            step.wait();
            let mut sizes = sizes(index);
            for _ in 0..ROUNDS {
                let size = sizes.next().unwrap();
                let inner = Scope::enter("inner").unwrap();
                let mut grown = block(size);
                let other = block(sizes.next().unwrap());
                let saw = live();
                seen.fetch_max(saw, Ordering::SeqCst);
                grown.reserve_exact(2 * size);
                drop(other);
                let saw_again = live();
                seen.fetch_max(saw_again, Ordering::SeqCst);
                let inner = inner.finish();
                assert!(inner.peak >= saw.max(saw_again));
                assert!(inner.peak_above_start() <= THREADS * EACH);
            }
            // All at once: the known maximum.
            step.wait();
            let most = block(EACH);
            step.wait();
            drop(most);
            step.wait();
            // A thread that ends frees what belongs to it.
            step.wait();
        }
    };
    let start = live();
    thread::scope(|threads| {
        let handles: Vec<_> = (0..THREADS).map(|index| threads.spawn(hammer(index))).collect();
        step.wait();
        let scope = Scope::enter("all").unwrap();
        memory::reset_peak();
        step.wait();
        step.wait();
        step.wait();
        step.wait();
        let bytes = scope.finish();
        step.wait();
        assert_eq!((bytes.peak_above_start(), bytes.retained()), (THREADS * EACH, 0));
        assert!(memory::peak() >= Some(bytes.peak));
        assert!(bytes.peak >= seen.load(Ordering::SeqCst));
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
    assert_eq!(live(), start);
}

/// A count from before a scope must not get into its peak, however late the thread that made it reports it.
fn scopes_in_turmoil() {
    const SMALL: usize = 4096;
    const LARGE: usize = 1 << 20;
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let allocate = |index: usize| {
            let over = &over;
            move || {
                for size in sizes(index) {
                    drop(block(size));
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        };
        let handles: Vec<_> = (0..3).map(|index| threads.spawn(allocate(index))).collect();
        let mut large = block(LARGE);
        for _ in 0..20_000 {
            drop(std::mem::take(&mut large));
            let scope = Scope::enter("after the large block").unwrap();
            drop(block(SMALL));
            let small = scope.finish();
            assert!(small.peak_above_start() <= 4 * SMALL, "{small:?}");
            large = block(LARGE);
        }
        over.store(true, Ordering::Relaxed);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
}

fn marks_without_timeline() {
    let start = live();
    let asked = RefCell::new(false);
    memory::mark("nobody listens");
    memory::mark_with(|| {
        asked.replace(true);
        "nobody asks"
    });
    assert!(!asked.take());
    drop(Timeline::start().unwrap());
    memory::mark("nobody listens any more");
    assert_eq!(live(), start);
}

fn timeline_of_all_threads() {
    let step = Barrier::new(2);
    thread::scope(|threads| {
        let worker = threads.spawn(|| {
            step.wait();
            step.wait();
            drop(block(5_000_000));
            memory::mark("not of the thread that records");
            step.wait();
            step.wait();
            let kept = block(1_000_000);
            step.wait();
            step.wait();
            drop(kept);
            step.wait();
            step.wait();
        });
        step.wait();
        let timeline = Timeline::start().unwrap();
        step.wait();
        step.wait();
        memory::mark("gone");
        step.wait();
        step.wait();
        memory::mark("kept");
        step.wait();
        step.wait();
        let curve = timeline.finish();
        step.wait();
        worker.join().unwrap();
        let marks =
            curve.marks().iter().map(|mark| (mark.name.as_ref(), mark.live, mark.peak_since_previous));
        let expected = [("gone", 0, 5_000_000), ("kept", 1_000_000, 1_000_000), ("end", 0, 1_000_000)];
        assert!(marks.eq(expected), "{curve}");
        assert_eq!(curve.peak(), 5_000_000);
        assert!(curve.marks().windows(2).all(|pair| pair[0].elapsed <= pair[1].elapsed));
    });
}

fn timeline_below_its_start() {
    let before = block(3000);
    let timeline = Timeline::start().unwrap();
    drop(before);
    memory::mark("freed");
    drop(block(1000));
    let curve = timeline.finish();
    let marks = curve.marks().iter().map(|mark| (mark.live, mark.peak_since_previous));
    assert!(marks.eq([(-3000, 0), (-3000, -2000)]), "{curve:?}");
    assert_eq!(curve.peak(), 0);
}

fn timeline_does_not_show_itself() {
    let start = live();
    let timeline = Timeline::start().unwrap();
    // More than there is room for, with names of their own.
    for index in 0..1000 {
        memory::mark_with(|| format!("forward of segment {index}"));
    }
    let kept = block(10);
    let curve = timeline.finish();
    assert_eq!(curve.marks().len(), 1001);
    for mark in &curve.marks()[..1000] {
        assert_eq!((mark.live, mark.peak_since_previous), (0, 0), "{mark:?}");
    }
    assert_eq!(curve.marks()[999].name, "forward of segment 999");
    assert_eq!((curve.marks()[1000].live, curve.peak()), (10, 10));
    drop((kept, curve));
    assert_eq!(live(), start);
}

fn one_timeline_per_thread() {
    let timeline = Timeline::start().unwrap();
    assert_eq!(Timeline::start().err(), Some(MemoryError::TimelineRunning));
    thread::spawn(|| {
        let timeline = Timeline::start().unwrap();
        memory::mark("theirs");
        assert_eq!(timeline.finish().marks().len(), 2);
    })
    .join()
    .unwrap();
    memory::mark_with(|| {
        memory::mark("within a name");
        assert_eq!(Timeline::start().err(), Some(MemoryError::TimelineRunning));
        "ours"
    });
    let curve = timeline.finish();
    assert!(curve.marks().iter().map(|mark| mark.name.as_ref()).eq(["ours", "end"]));
    assert_eq!(Timeline::start().unwrap().finish().marks().len(), 1);
}

fn mark_whose_name_panics() {
    let timeline = Timeline::start().unwrap();
    let unwound = panic::catch_unwind(AssertUnwindSafe(|| {
        // Does not run the hook.
        memory::mark_with(|| -> String { panic::resume_unwind(Box::new("no name")) });
    }));
    assert!(unwound.is_err());
    memory::mark("the next");
    assert_eq!(timeline.finish().marks().len(), 2);
}

fn curve_of_a_step() {
    let timeline = Timeline::start().unwrap();
    let mut kept = [const { Vec::new() }; 2];
    for (segment, kept) in kept.iter_mut().enumerate() {
        let inner = block(4_000_000);
        *kept = block(1_000_000);
        drop(inner);
        memory::mark_with(|| format!("forward of segment {segment}"));
    }
    for (segment, kept) in kept.iter_mut().enumerate().rev() {
        let recomputed = block(6_000_000);
        drop((recomputed, std::mem::take(kept)));
        memory::mark_with(|| format!("backward of segment {segment}"));
    }
    let curve = timeline.finish();
    let expected = "\
mark                     live MB    peak MB
forward of segment 0       1.000      5.000 █████░░░░░░░░░░░░░░░░░░
forward of segment 1       2.000      6.000 █████████░░░░░░░░░░░░░░░░░░
backward of segment 1      1.000      8.000 █████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
backward of segment 0      0.000      7.000 ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
end                        0.000      0.000
peak: 8.000 MB above the start, before \"backward of segment 1\"";
    assert_eq!(curve.to_string(), expected);
    let csv = curve.to_csv();
    assert!(csv.lines().nth(3).unwrap().starts_with("backward of segment 1,1000000,8000000,0."), "{csv}");
}
