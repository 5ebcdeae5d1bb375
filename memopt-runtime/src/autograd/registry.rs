//! Which function made a tensor: found by tensor id, held weakly, removed when the tensor is dropped.

use super::cell::Cell;
use super::gradient::Gradient;
use crate::Result;
use candle_core::{Shape, Tensor, TensorId};
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
    /// Shape of the output; a view of it has another one.
    pub(super) shape: Shape,
    /// Whether it stands at the beginning of a graph.
    pub(super) is_leaf: bool,
    /// Views of the output, which keep it alive.
    views: Mutex<Vec<TensorId>>,
}

impl Producer {
    pub(super) fn new(token: Tensor, cell: Arc<Cell>, output: usize, shape: Shape, is_leaf: bool) -> Self {
        Producer { token, cell, output, shape, is_leaf, views: Mutex::default() }
    }

    /// Adds a gradient of the output, or of a view of it.
    pub(super) fn deposit(&self, gradient: Gradient) -> Result<()> {
        self.cell.deposit(self.output, gradient.reshaped(&self.shape)?)
    }
}

type Map = HashMap<TensorId, Weak<Producer>>;

// No tensor is dropped while the lock is held, so that a drop may take it.
static REGISTRY: LazyLock<Mutex<Map>> = LazyLock::new(Mutex::default);

/// An entry of the registry, held by the tensor: it goes when the tensor goes, and keeps the producer as long.
pub(super) struct Registration {
    id: TensorId,
    producer: Arc<Producer>,
}

impl Registration {
    /// Makes the producer findable by the tensor.
    pub(super) fn new(tensor: &Tensor, producer: Arc<Producer>) -> Self {
        REGISTRY.lock().insert(tensor.id(), Arc::downgrade(&producer));
        Registration { id: tensor.id(), producer }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let views = std::mem::take(&mut *self.producer.views.lock());
        let mut registry = REGISTRY.lock();
        std::iter::once(self.id).chain(views).for_each(|id| drop(registry.remove(&id)));
    }
}

/// Makes the producer of a tensor findable by a view of that tensor too, which keeps the tensor alive.
pub(super) fn register_view(view: &Tensor, producer: &Arc<Producer>) {
    producer.views.lock().push(view.id());
    REGISTRY.lock().insert(view.id(), Arc::downgrade(producer));
}

/// The function that made this tensor, if one did.
pub(super) fn producer_of(tensor: &Tensor) -> Option<Arc<Producer>> {
    REGISTRY.lock().get(&tensor.id()).and_then(Weak::upgrade)
}

#[cfg(test)]
pub(super) fn is_registered(id: TensorId) -> bool {
    REGISTRY.lock().contains_key(&id)
}

pub(super) fn len() -> usize {
    REGISTRY.lock().len()
}
