//! Large buffers, and buffers that tasks take and give back.

use crate::compress::kernels::advise_huge_pages;
use crate::nn::element::Element;
use crate::nn::input::wrong;
use crate::Result;
use parking_lot::Mutex;

/// A vector of zeros, in huge pages if it is large: a result is fresh memory, whose page faults took a fifth of the time.
pub(super) fn zeros<E: Element>(len: usize) -> Vec<E> {
    let mut values = vec![E::ZERO; len];
    advise_huge_pages(&mut values);
    values
}

/// The same; an error of `part` if there is not as much memory.
pub(in crate::nn) fn try_zeros<E: Element>(part: &str, len: Option<usize>) -> Result<Vec<E>> {
    let fits = len.filter(|&len| Vec::<E>::new().try_reserve_exact(len).is_ok());
    let len = fits.ok_or_else(|| wrong(part, "there is not enough memory for an output of this size"))?;
    Ok(zeros(len))
}

/// Makes a buffer have at least `len` elements.
pub(super) fn grow<E: Element>(buffer: &mut Vec<E>, len: usize) {
    if buffer.len() < len {
        *buffer = zeros(len);
    }
}

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
