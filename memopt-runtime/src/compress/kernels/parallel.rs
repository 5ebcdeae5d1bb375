//! Whether and how the work on one tensor is shared between threads.

use rayon::prelude::*;

/// Raw bytes of the tensor from which threads pay. Handing work to a second thread costs 15 microseconds while the pool
/// is awake and about 50 while it sleeps; one AVX-512 core takes 65 microseconds for this many bytes.
pub const PARALLEL_BYTES: usize = 4 << 20;

/// Elements of one task; a multiple of 64, so that no two tasks share a word of [`Bits`](super::Bits). Small enough for
/// a few tasks in the smallest parallel tensor, large enough that starting one costs nothing.
pub const TASK_ELEMENTS: usize = 1 << 17;

/// Runs all tasks, on the threads of the current pool if the tensor is large, and tells whether all succeeded. Once one
/// has failed, no more are started. Tasks write to separate places, so the result is the same for any number of threads.
pub fn all<T: Send>(
    raw_bytes: usize,
    tasks: impl Iterator<Item = T>,
    run: impl Fn(T) -> bool + Send + Sync,
) -> bool {
    if raw_bytes < PARALLEL_BYTES || rayon::current_num_threads() == 1 {
        return { tasks }.all(run);
    }
    let tasks: Vec<T> = tasks.collect();
    tasks.into_par_iter().with_max_len(1).try_for_each(|task| run(task).then_some(())).is_some()
}
