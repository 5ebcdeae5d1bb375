//! Which variables were changed since a forward pass.
//!
//! A recompute with other weights than the first pass had gives wrong gradients. Candle does not say when a variable is
//! set; optimizers that say so here are held to it. Checksums ([`Options::verify`](super::Options::verify)) find the others.

use candle_core::{Tensor, TensorId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::LazyLock;

static VERSIONS: LazyLock<Mutex<HashMap<TensorId, u64>>> = LazyLock::new(Mutex::default);

/// Says that a variable has got new values, as after an optimizer's step. A segment whose forward read the old ones
/// refuses to recompute with the new.
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
    *VERSIONS.lock().entry(variable.id()).or_default() += 1;
}

/// The versions of some variables, in order.
pub(super) fn versions_of(variables: &[Tensor]) -> Vec<u64> {
    let versions = VERSIONS.lock();
    variables.iter().map(|v| versions.get(&v.id()).copied().unwrap_or_default()).collect()
}
