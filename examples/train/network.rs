//! The network, and the images as a data set.

use super::digits::Digits;
use super::flags::Flags;
use candle_core::{DType, Result, Tensor};
use candle_nn::VarBuilder;
use memopt::checkpoint::Planned;
use memopt::data::{from_fn, Loader};
use memopt::nn::{AvgPool2d, BatchNorm2d, Conv2d, Conv2dConfig, Dropout, Flatten, Lif, Linear, Surrogate};
use memopt::train::Metrics;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(pool, conv, bn, neuron)]
pub struct Block {
    pool: Option<AvgPool2d>,
    conv: Conv2d,
    bn: BatchNorm2d,
    neuron: Lif,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(features, pool, flatten, dropout, classifier)]
pub struct Net {
    features: Vec<Block>,
    pool: AvgPool2d,
    flatten: Flatten,
    dropout: Dropout,
    classifier: Linear,
}

const CHANNELS: [usize; 3] = [16, 32, 64];

impl Net {
    pub fn new(vb: VarBuilder, dropout: f64) -> memopt::Result<Self> {
        let mut features = Vec::new();
        let mut from = 1;
        for (index, to) in CHANNELS.into_iter().enumerate() {
            let vb = vb.pp("features").pp(index);
            features.push(Block {
                pool: (index > 0).then(|| AvgPool2d::new(2)),
                conv: Conv2d::new(from, to, 3, Conv2dConfig::default().padding(1), vb.pp("conv"))?,
                bn: BatchNorm2d::new(to, Default::default(), vb.pp("bn"))?,
                neuron: Lif::new(2.)?.decay_input(false).detach_reset(true).surrogate(Surrogate::atan()),
            });
            from = to;
        }
        let classifier = Linear::new(from, 10, Default::default(), vb.pp("classifier"))?;
        let dropout = Dropout::new(dropout)?;
        Ok(Net { features, pool: AvgPool2d::new(2), flatten: Flatten, dropout, classifier })
    }
}

/// The images that are trained on, and those that are held out.
pub struct Data {
    pub training: Loader<(Tensor, u32)>,
    /// `[T, N, 1, 8, 8]`, and labels.
    held_out: (Tensor, Tensor),
}

impl Data {
    pub fn new(flags: &Flags) -> Result<Self> {
        let (digits, time_steps, dtype) = (Digits::load(), flags.time_steps, flags.dtype());
        let (held_out, mut training) = digits.split();
        training.truncate(flags.images.unwrap_or(training.len()));
        let (x, labels) = digits.select(&held_out, time_steps)?;
        let held_out = (x.to_dtype(dtype)?, labels);
        let samples = from_fn(training.len(), move |index| {
            let (x, labels) = digits.select(&[training[index]], time_steps)?;
            Ok((x.squeeze(1)?.to_dtype(dtype)?, labels.get(0)?.to_scalar::<u32>()?))
            // [T, 1, 8, 8]
        });
        let training =
            Loader::new(samples).batch_size(flags.micro_batch.into()).shuffle(true).seed(flags.seed);
        Ok(Data { training, held_out })
    }

    /// A micro-batch, for the search.
    pub fn sample(&self) -> memopt::Result<Tensor> {
        let first = self.training.epoch(0)?.next().transpose()?;
        first.map(|batch| batch.data.0).ok_or_else(|| {
            let what = "there are no images".into();
            memopt::Error::Training { part: "data".into(), what }
        })
    }

    /// The share of the held out images that are told right.
    pub fn accuracy(&self, net: &Planned<Net>) -> memopt::Result<Metrics> {
        let (x, labels) = &self.held_out;
        let logits = net.predict(x)?.into_dense("logits")?.to_dtype(DType::F32)?.mean(0)?;
        let right = logits.argmax(1)?.eq(labels)?.to_dtype(DType::F32)?.mean_all()?.to_scalar::<f32>()?;
        Ok(Metrics::from([("accuracy".to_owned(), right.into())]))
    }
}
