//! Which function made a tensor: found by tensor id, held weakly, removed when the tensor is dropped.

use super::cell::Cell;
use candle_core::{Tensor, TensorId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

/// The function and the output that a tensor came from.
pub(super) struct Producer {
    /// The function's token.
    pub(super) token: Tensor,
    pub(super) cell: Arc<Cell>,
    /// Which output.
    pub(super) output: usize,
    /// Whether it stands at the beginning of a graph.
    pub(super) is_leaf: bool,
}

type Map = HashMap<TensorId, Weak<Producer>>;

// No tensor is dropped while the lock is held, so that a drop may take it.
static REGISTRY: LazyLock<Mutex<Map>> = LazyLock::new(Mutex::default);

/// An entry of the registry, held by the tensor: it goes when the tensor goes, and keeps the producer as long.
pub(super) struct Registration {
    id: TensorId,
    _producer: Arc<Producer>,
}

impl Registration {
    /// Makes the producer findable by the tensor.
    pub(super) fn new(tensor: &Tensor, producer: Arc<Producer>) -> Self {
        REGISTRY.lock().insert(tensor.id(), Arc::downgrade(&producer));
        Registration { id: tensor.id(), _producer: producer }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        REGISTRY.lock().remove(&self.id);
    }
}

/// The function that made this tensor, if one did.
pub(super) fn producer_of(tensor: &Tensor) -> Option<Arc<Producer>> {
    REGISTRY.lock().get(&tensor.id()).and_then(Weak::upgrade)
}

pub(super) fn len() -> usize {
    REGISTRY.lock().len()
}
