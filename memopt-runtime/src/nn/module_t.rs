//! Layers that stand by themselves are modules of Candle.

use super::*;
use crate::module::forward_t;
use candle_core::{ModuleT, Result, Tensor};

macro_rules! module_t {
    ($($layer:ty)*) => {
        $(
            /// Runs the layer in the session of the process, on a window `[T, N, ...]`.
            impl ModuleT for $layer {
                fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
                    forward_t(self, x, train)
                }
            }
        )*
    };
}
module_t!(
    Conv1d Conv2d Linear BatchNorm LayerNorm AvgPool2d MaxPool2d AdaptiveAvgPool2d AdaptiveMaxPool2d Flatten TimeFirst
    Identity Dropout Lif If Plif Psn
);
