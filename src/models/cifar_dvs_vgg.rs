//! The spiking VGG of CIFAR10-DVS.

use crate::nn::init::kaiming_normal;
use crate::nn::{
    AvgPool2d, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig, Dropout, Flatten, Lif, Linear,
    LinearConfig, Surrogate, TimeFirst,
};
use crate::{Checkpointable, Result};
use candle_nn::init::FanInOut;
use candle_nn::VarBuilder;

/// Pool (where there is one), convolution, batch norm: the part of a block without time.
#[derive(Debug, Clone, Checkpointable)]
#[spatial_split(pool, conv, bn)]
pub struct ProjBn {
    pool: Option<AvgPool2d>,
    conv: Conv2d,
    bn: BatchNorm2d,
}

/// conv3x3 - batch norm - LIF: `[T, N, C, H, W]` in, spikes of half the height and width out where it pools.
#[derive(Debug, Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(proj_bn, neuron)]
pub struct VggBlock {
    proj_bn: ProjBn,
    neuron: Lif,
}

/// The spiking VGG of CIFAR10-DVS: event counts `[N, T, 2, H, W]` (48x48 in the literature) to logits `[T, N, 10]`.
///
/// Eight blocks conv3x3(padding 1) - batch norm - LIF with channels 2-64, 64-128, (pool) 128-256, 256-256, (pool)
/// 256-512, 512-512, (pool) 512-512, 512-512; then average pool 2, flatten, dropout 0.25, linear to 10. LIF: tau 1.333,
/// without decay of the input, hard reset to 0, threshold 1, reset detached, ATan surrogate. Convolutions are initialized
/// Kaiming-normal by fan out. As SpikingJelly's `CIFAR10DVSVGG`.
#[derive(Debug, Clone, Checkpointable)]
#[spatial_split(time_first, features, pool, flatten, dropout, classifier)]
pub struct CifarDvsVgg {
    time_first: TimeFirst,
    features: Vec<VggBlock>,
    pool: AvgPool2d,
    flatten: Flatten,
    dropout: Dropout,
    classifier: Linear,
}

/// Output channels of each block, and whether it begins with a pool.
const BLOCKS: [(usize, bool); 8] = [
    (64, false),
    (128, false),
    (256, true),
    (256, false),
    (512, true),
    (512, false),
    (512, true),
    (512, false),
];

impl VggBlock {
    /// A block; `v_threshold` is 1 in the literature.
    ///
    /// # Errors
    /// If the variables cannot be had.
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        pool: bool,
        v_threshold: f64,
        vb: VarBuilder<'_>,
    ) -> Result<Self> {
        let inside = vb.pp("proj_bn");
        let config = Conv2dConfig::default().padding(1).init(kaiming_normal(FanInOut::FanOut));
        let proj_bn = ProjBn {
            pool: pool.then(|| AvgPool2d::new(2)),
            conv: Conv2d::new(in_channels, out_channels, 3, config, inside.pp("conv"))?,
            bn: BatchNorm2d::new(out_channels, BatchNormConfig::default(), inside.pp("bn"))?,
        };
        let neuron = Lif::new(1.333)?
            .decay_input(false)
            .detach_reset(true)
            .surrogate(Surrogate::atan())
            .v_threshold(v_threshold);
        Ok(VggBlock { proj_bn, neuron })
    }
}

impl CifarDvsVgg {
    /// The network for images of `side` x `side`, which 16 divides.
    ///
    /// # Errors
    /// If the variables cannot be had.
    pub fn new(side: usize, vb: VarBuilder<'_>) -> Result<Self> {
        Self::with_thresholds(side, &[1.; 8], vb)
    }

    /// The same with a threshold for each block, for studies at a given firing rate.
    ///
    /// # Errors
    /// If the variables cannot be had.
    pub fn with_thresholds(side: usize, thresholds: &[f64; 8], vb: VarBuilder<'_>) -> Result<Self> {
        let mut features = Vec::with_capacity(BLOCKS.len());
        let mut channels = 2;
        for (index, ((out, pool), threshold)) in BLOCKS.into_iter().zip(thresholds).enumerate() {
            features.push(VggBlock::new(channels, out, pool, *threshold, vb.pp("features").pp(index))?);
            channels = out;
        }
        let inputs = channels * (side / 16) * (side / 16);
        Ok(CifarDvsVgg {
            time_first: TimeFirst,
            features,
            pool: AvgPool2d::new(2),
            flatten: Flatten,
            dropout: Dropout::new(0.25)?,
            classifier: Linear::new(inputs, 10, LinearConfig::default(), vb.pp("classifier"))?,
        })
    }
}
