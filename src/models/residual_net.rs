//! A spiking residual network: SEW blocks.

use crate::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig, Flatten, Lif, Linear,
    LinearConfig, Surrogate,
};
use crate::{Checkpointable, Result};
use candle_nn::VarBuilder;

/// Convolution, batch norm, LIF.
#[derive(Debug, Clone, Checkpointable)]
#[spatial_split(conv, bn, neuron)]
pub struct SpikingConv {
    conv: Conv2d,
    bn: BatchNorm2d,
    neuron: Lif,
}

/// A "spike-element-wise" block (Fang et al., NeurIPS 2021): two [`SpikingConv`] of 3x3, and the sum of their spikes and
/// those of the shortcut, which is the input or, where size or channels change, a [`SpikingConv`] of 1x1.
#[derive(Debug, Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(join(add; (first, second), shortcut))]
pub struct SewBlock {
    first: SpikingConv,
    second: SpikingConv,
    shortcut: Option<SpikingConv>,
}

/// A small residual network of SEW blocks: `[T, N, C, H, W]` to `[T, N, classes]`.
///
/// A [`SpikingConv`] of 3x3, then stages of blocks, each stage with its number of channels; the first block of each but
/// the first halves height and width. Then the mean over the image, and a linear layer.
#[derive(Debug, Clone, Checkpointable)]
#[spatial_split(stem, stages, pool, flatten, classifier)]
pub struct ResidualNet {
    stem: SpikingConv,
    stages: Vec<Vec<SewBlock>>,
    pool: AdaptiveAvgPool2d,
    flatten: Flatten,
    classifier: Linear,
}

impl SpikingConv {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, vb: VarBuilder<'_>) -> Result<Self> {
        let config = Conv2dConfig::default().padding(kernel / 2).stride(stride).bias(false);
        Ok(SpikingConv {
            conv: Conv2d::new(channels[0], channels[1], kernel, config, vb.pp("conv"))?,
            bn: BatchNorm2d::new(channels[1], BatchNormConfig::default(), vb.pp("bn"))?,
            neuron: Lif::new(2.)?.decay_input(false).detach_reset(true).surrogate(Surrogate::atan()),
        })
    }
}

impl SewBlock {
    /// A block; a `stride` of 2 halves height and width.
    ///
    /// # Errors
    /// If the variables cannot be had.
    pub fn new(channels: [usize; 2], stride: usize, vb: VarBuilder<'_>) -> Result<Self> {
        let changes = stride != 1 || channels[0] != channels[1];
        Ok(SewBlock {
            first: SpikingConv::new(channels, 3, stride, vb.pp("first"))?,
            second: SpikingConv::new([channels[1]; 2], 3, 1, vb.pp("second"))?,
            shortcut: match changes {
                true => Some(SpikingConv::new(channels, 1, stride, vb.pp("shortcut"))?),
                false => None,
            },
        })
    }
}

impl ResidualNet {
    /// A network for images of `channels`, with `blocks` blocks in each stage of so many channels.
    ///
    /// # Errors
    /// If the variables cannot be had.
    pub fn new(
        channels: usize,
        stages: &[usize],
        blocks: usize,
        classes: usize,
        vb: VarBuilder<'_>,
    ) -> Result<Self> {
        let mut width = stages.first().copied().unwrap_or(channels);
        let stem = SpikingConv::new([channels, width], 3, 1, vb.pp("stem"))?;
        let mut all = Vec::with_capacity(stages.len());
        for (index, &next) in stages.iter().enumerate() {
            let vb = vb.pp("stages").pp(index);
            let mut stage = Vec::with_capacity(blocks);
            for block in 0..blocks {
                let stride = if index > 0 && block == 0 { 2 } else { 1 };
                stage.push(SewBlock::new([width, next], stride, vb.pp(block))?);
                width = next;
            }
            all.push(stage);
        }
        Ok(ResidualNet {
            stem,
            stages: all,
            pool: AdaptiveAvgPool2d::new(1),
            flatten: Flatten,
            classifier: Linear::new(width, classes, LinearConfig::default(), vb.pp("classifier"))?,
        })
    }
}
