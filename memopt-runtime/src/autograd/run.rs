//! The node that is a function's token: when Candle's backward reaches it, all gradients of the outputs are in.

use super::cell::Cell;
use super::live::Live;
use super::token;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use std::sync::{Arc, OnceLock};

pub(super) struct Run {
    pub(super) cell: Arc<Cell>,
    /// Set when the token is made.
    pub(super) _live: Arc<OnceLock<Live>>,
}

impl CustomOp1 for Run {
    fn name(&self) -> &'static str {
        "memopt run"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok(token::forward())
    }

    fn bwd(&self, inputs: &Tensor, _: &Tensor, deliveries: &Tensor) -> Result<Option<Tensor>> {
        self.cell.run(deliveries.to_scalar::<f32>()? as usize)?;
        Ok(Some(token::deliveries(0, inputs.device())?))
    }
}
