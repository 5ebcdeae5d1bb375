//! Neuron states by path.

use candle_core::Tensor;
use std::collections::BTreeMap;

/// The state of each neuron layer, by the layer's path: the membrane potential `v` after the last time step, `[N, ...]`.
#[derive(Debug, Clone, Default)]
pub struct States(BTreeMap<String, Tensor>);

impl States {
    /// The state of the layer at `path`.
    pub fn get(&self, path: &str) -> Option<&Tensor> {
        self.0.get(path)
    }

    /// Sets the state of the layer at `path`.
    pub fn set(&mut self, path: &str, state: Tensor) {
        self.0.insert(path.to_owned(), state);
    }

    /// Adds the states of another, or puts them in the place of those here.
    pub(crate) fn extend(&mut self, other: &States) {
        self.0.extend(other.0.iter().map(|(path, state)| (path.clone(), state.clone())));
    }

    /// All states, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.0.iter().map(|(path, state)| (path.as_str(), state))
    }
}
