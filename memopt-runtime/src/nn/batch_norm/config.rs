//! Configuration of batch norm.

/// Configuration of [`BatchNorm`](super::BatchNorm): `BatchNormConfig::default().momentum(0.05)`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BatchNormConfig {
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
    /// How far the running statistics move; 0.1 by default.
    pub momentum: f64,
    /// Whether there are a weight and a bias; true by default.
    pub affine: bool,
}

impl Default for BatchNormConfig {
    fn default() -> Self {
        BatchNormConfig { eps: 1e-5, momentum: 0.1, affine: true }
    }
}

impl BatchNormConfig {
    /// Sets what is added to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// Sets how far the running statistics move.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Sets whether there are a weight and a bias.
    pub fn affine(mut self, affine: bool) -> Self {
        self.affine = affine;
        self
    }
}
