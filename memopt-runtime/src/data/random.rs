//! Random numbers of a sample.

use crate::nn::Stream;

/// What the random numbers of a sample are a function of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// The loader's seed.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// The sample's index in the data set.
    pub index: usize,
}

/// Random numbers for one sample in one epoch: the same whatever thread or rank asks for them, and whatever went before.
#[derive(Debug, Clone)]
pub struct Random {
    key: SampleKey,
    stream: Stream,
    /// Numbers that were drawn.
    drawn: u64,
}

impl Random {
    /// Those of one of several augmentations.
    pub(super) fn new(key: SampleKey, stage: usize) -> Self {
        let name = format!("augmentation {stage} of sample {}", key.index);
        Random { key, stream: Stream::new(key.seed, key.epoch, &name), drawn: 0 }
    }

    /// What the numbers are a function of, for a generator of one's own.
    pub fn key(&self) -> SampleKey {
        self.key
    }

    /// 53 uniform bits.
    pub fn bits(&mut self) -> u64 {
        let bits = self.stream.bits(self.drawn);
        self.drawn += 1;
        bits
    }

    /// A uniform number in [0, 1), a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        let number = self.stream.uniform(self.drawn);
        self.drawn += 1;
        number
    }

    /// A number of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        // Two uniform numbers make one, from an even place on.
        let pair = self.drawn.div_ceil(2);
        self.drawn = 2 * pair + 2;
        self.stream.normal(pair)
    }

    /// A uniform whole number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        below(self.bits(), end)
    }

    /// True with a probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }
}

/// A whole number below `end` from 53 uniform bits. None is likelier than another by more than `end` / 2^53.
pub(super) fn below(bits: u64, end: usize) -> usize {
    ((u128::from(bits) * end as u128) >> 53) as usize
}
