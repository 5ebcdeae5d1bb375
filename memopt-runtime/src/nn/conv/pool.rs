//! Buffers that tasks take and give back.

use parking_lot::Mutex;

/// As many buffers as tasks ran at once, made when they are needed. Rayon's `for_each_init` makes one for each piece that
/// it cuts the work into, whose pages would all be fresh.
pub(super) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Pool(Mutex::new(Vec::new()))
    }
}

impl<T: Default> Pool<T> {
    /// Runs `f` with a buffer, in whatever state its last user left it.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let taken = self.0.lock().pop();
        let mut buffer = taken.unwrap_or_default();
        let result = f(&mut buffer);
        self.0.lock().push(buffer);
        result
    }
}
