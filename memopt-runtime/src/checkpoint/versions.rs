//! Which variables were changed since a forward pass.
//!
//! A recompute with other weights than the first pass had gives wrong gradients. Candle does not say when a variable is
//! set; optimizers that say so here are held to it. Checksums ([`Options::verify`](super::Options::verify)) find the others.

use candle_core::{Tensor, TensorId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The variables that a segment waits for, and no others.
static WATCHED: LazyLock<Mutex<HashMap<TensorId, Watched>>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Watched {
    segments: usize,
    changes: u64,
}

/// Says that a variable has got new values, as after an optimizer's step. A segment whose forward read the old ones
/// refuses to recompute with the new. Give the variable itself: a detached tensor is another one.
///
/// ```
/// use candle_core::{Device, Var};
/// use memopt_runtime::{checkpoint::{checkpoint, mark_changed}, Error};
///
/// let w = Var::new(&[1f32, 2.], &Device::Cpu)?;
/// let (x, captured) = (w.as_detached_tensor(), w.clone());
/// let y = checkpoint(move |x| x[0].mul(&captured), &[x], "layer")?;
/// w.set(&w.affine(2., 0.)?.detach())?;
/// mark_changed(&w);
/// let error = y.sum_all()?.backward().unwrap_err();
/// assert!(matches!(Error::find(&error), Some(Error::WeightsChanged { segment, .. }) if segment == "layer"));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn mark_changed(variable: &Tensor) {
    if let Some(watched) = WATCHED.lock().get_mut(&variable.id()) {
        watched.changes += 1;
    }
}

/// Watches one variable from a forward to its backward.
pub(super) struct Watch {
    variable: TensorId,
    changes: u64,
}

impl Watch {
    pub(super) fn new(variable: &Tensor) -> Self {
        let mut all = WATCHED.lock();
        let watched = all.entry(variable.id()).or_default();
        watched.segments += 1;
        Watch { variable: variable.id(), changes: watched.changes }
    }

    /// Whether the variable was changed since.
    pub(super) fn has_changed(&self) -> bool {
        WATCHED.lock().get(&self.variable).is_some_and(|watched| watched.changes != self.changes)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = WATCHED.lock();
        if let Some(watched) = all.get_mut(&self.variable) {
            watched.segments -= 1;
            if watched.segments == 0 {
                all.remove(&self.variable);
            }
        }
    }
}
