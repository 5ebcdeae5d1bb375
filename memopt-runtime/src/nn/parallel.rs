//! Whether work is worth a second thread.

/// Multiplications of one task at least: handing work over takes as long as some hundred thousand.
const TASK: usize = 1 << 20;

/// Items of one task at least, where each is so many multiplications: for `with_min_len` of rayon's iterators, which stay on
/// the calling thread while there are fewer than twice as many. Results do not depend on it.
pub(crate) fn least_items(work: usize) -> usize {
    (TASK / work.max(1)).max(1)
}

/// Threads, of so many, that work at once on items of so many multiplications each.
pub(crate) fn running(threads: usize, items: usize, work: usize) -> usize {
    threads.min(items / least_items(work)).max(1)
}

#[cfg(test)]
mod tests {
    use super::{least_items, running, TASK};

    #[test]
    fn as_many_threads_run_as_there_is_work_for() {
        assert_eq!(running(4, 100, TASK), 4);
        assert_eq!(running(4, 3, TASK), 3);
        assert_eq!(running(4, 7, TASK / 4), 1);
        assert_eq!(running(4, 8, TASK / 4), 2);
        assert_eq!(running(4, 0, 0), 1);
    }

    #[test]
    fn small_items_are_many() {
        assert_eq!(least_items(0), TASK);
        assert_eq!(least_items(TASK / 4), 4);
        assert_eq!(least_items(usize::MAX), 1);
    }
}
