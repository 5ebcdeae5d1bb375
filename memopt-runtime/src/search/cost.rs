//! What work costs: a table with a version, so that the same plan is found on every run and every machine.

use crate::module::Work;

/// Seconds for what layers do.
///
/// The numbers of version 1 are rounded measurements of the CPU kernels on two cores with AVX-512. They stand for
/// proportions: which of two plans is faster. [`scaled`](Self::scaled) fits them to a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostTable {
    version: u32,
    seconds_per_product: f64,
    seconds_per_byte: f64,
    threads: usize,
}

impl Default for CostTable {
    fn default() -> Self {
        CostTable { version: 1, seconds_per_product: 6e-12, seconds_per_byte: 1.5e-10, threads: 2 }
    }
}

impl CostTable {
    /// Which numbers these are.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The threads whose workspaces are counted.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The same with the workspaces of so many threads.
    pub fn with_threads(self, threads: usize) -> Self {
        CostTable { threads: threads.max(1), ..self }
    }

    /// The same for a machine that takes `factor` times as long.
    pub fn scaled(self, factor: f64) -> Self {
        CostTable {
            seconds_per_product: self.seconds_per_product * factor,
            seconds_per_byte: self.seconds_per_byte * factor,
            ..self
        }
    }

    /// How long some work takes.
    pub fn seconds(&self, work: Work) -> f64 {
        work.products * self.seconds_per_product + work.traffic * self.seconds_per_byte
    }
}
