//! The norms of candle-nn.

use super::{Parameters, Visitor};
use candle_core::Tensor;
use candle_nn::{BatchNorm, LayerNorm, LayerNormConfig, VarBuilder};
use std::collections::HashMap;

/// Paths: `weight`, `bias`.
#[diagnostic::do_not_recommend]
impl Parameters for LayerNorm {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("weight", self.weight());
        if let Some(bias) = self.bias() {
            visitor.field("bias", bias);
        }
    }

    fn detached(&self) -> Self {
        let (weight, eps) = (self.weight().detach(), self.eps());
        match (self.remove_mean(), self.bias().map(Tensor::detach)) {
            (true, Some(bias)) => LayerNorm::new(weight, bias, eps),
            (true, None) => LayerNorm::new_no_bias(weight, eps),
            (false, None) => LayerNorm::rms_norm(weight, eps),
            // What has no weight `[hidden]`, or a bias of another dtype, is refused where it runs.
            (false, Some(bias)) => rms_norm_with_bias(weight, bias, eps).unwrap_or_else(|_| self.clone()),
        }
    }
}

/// candle-nn has a function for this one only that takes its tensors from a builder.
fn rms_norm_with_bias(weight: Tensor, bias: Tensor, eps: f64) -> candle_core::Result<LayerNorm> {
    let (size, dtype, device) = (weight.dims1()?, weight.dtype(), weight.device().clone());
    let tensors = HashMap::from([("weight".to_owned(), weight), ("bias".to_owned(), bias)]);
    let config = LayerNormConfig { eps, remove_mean: false, affine: true };
    candle_nn::layer_norm(size, config, VarBuilder::from_tensors(tensors, dtype, &device))
}

/// Paths: `weight`, `bias`. The running statistics are no parameters, and the twin shares them.
#[diagnostic::do_not_recommend]
impl Parameters for BatchNorm {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        if let Some((weight, bias)) = self.weight_and_bias() {
            visitor.field("weight", weight);
            visitor.field("bias", bias);
        }
    }

    fn detached(&self) -> Self {
        // The clone has the same running statistics, and where it runs, it is refused as the original is.
        match removes_mean(self) {
            Some(true) => rebuilt(self).unwrap_or_else(|_| self.clone()),
            _ => self.clone(),
        }
    }
}

/// A norm that removes the mean, with the same running statistics (they are variables, which are taken as they are) and
/// detached weights.
fn rebuilt(norm: &BatchNorm) -> candle_core::Result<BatchNorm> {
    let (mean, variance) = (norm.running_mean().clone(), norm.running_var().clone());
    let (channels, eps, momentum) = (mean.dims1()?, norm.eps(), norm.momentum());
    match norm.weight_and_bias() {
        Some((weight, bias)) => {
            let (weight, bias) = (weight.detach(), bias.detach());
            BatchNorm::new_with_momentum(channels, mean, variance, weight, bias, eps, momentum)
        }
        None => BatchNorm::new_no_bias_with_momentum(channels, mean, variance, eps, momentum),
    }
}

/// Whether a norm removes the mean; `None` if that cannot be known. The field is private, and shows only in `Debug`.
pub(crate) fn removes_mean(norm: &BatchNorm) -> Option<bool> {
    let shown = format!("{norm:?}");
    let (_, value) = shown.split_once("remove_mean: ")?;
    match value.split([',', ' ']).next() {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};
    use candle_nn::{BatchNormConfig, VarMap};

    /// Fails when candle-nn shows its field in another way; ask it directly if it has a method for it then.
    #[test]
    fn candle_shows_whether_a_batch_norm_removes_the_mean() {
        for remove_mean in [true, false] {
            for (channels, affine) in [(3, true), (70, false)] {
                let vb = VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu);
                let config = BatchNormConfig { remove_mean, affine, ..Default::default() };
                let norm = candle_nn::batch_norm(channels, config, vb).unwrap();
                assert_eq!(removes_mean(&norm), Some(remove_mean));
            }
        }
    }
}
