//! Random numbers that are a pure function of a key and an index.
//!
//! Number `i` of a stream is output `i` of SplitMix64 (Steele, Lea and Flood 2014) from the stream's state, computed without
//! those before it: `mix(state + (i + 1) gamma)`. The state is a hash of what the numbers are for (seed, call and path of a
//! layer; seed and name of a variable), so that different streams have nothing to do with each other.

use crate::fnv::{fnv, BEGIN};
use crate::module::RandomKey;

/// The increment of SplitMix64: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers that can be read at any place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream(u64);

impl Stream {
    /// The stream of a seed and a name; `call` tells uses of one name apart.
    pub(crate) fn new(seed: u64, call: u64, name: &str) -> Self {
        let use_of_seed = mix(mix(seed.wrapping_add(GAMMA)) ^ call.wrapping_add(GAMMA));
        Stream(mix(use_of_seed ^ fnv(BEGIN, name)))
    }

    /// The stream of a variable's first values.
    pub(crate) fn of_variable(seed: u64, name: &str) -> Self {
        Stream(mix(fnv(mix(seed ^ BEGIN), name)))
    }

    /// The stream of what runs. The key's `start` is not part of it: it belongs to the index.
    pub(crate) fn of(key: &RandomKey) -> Self {
        Self::new(key.seed, key.call, &key.path)
    }

    /// 53 uniform bits: number `index`.
    #[inline(always)]
    pub(crate) fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(GAMMA))) >> 11
    }

    /// A uniform number in [0, 1), a multiple of 2^-53: number `index`.
    pub(crate) fn uniform(self, index: u64) -> f64 {
        self.bits(index) as f64 / (1u64 << 53) as f64
    }

    /// A number of the standard normal distribution, by Box and Muller from the uniform numbers `2 index` and
    /// `2 index + 1`. The functions are those of `libm`, the same on every platform.
    pub(crate) fn normal(self, index: u64) -> f64 {
        let radius = (-2. * libm::log(1. - self.uniform(2 * index))).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.uniform(2 * index + 1))
    }
}

/// The output function of SplitMix64.
#[inline(always)]
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The published first outputs for the state 1234567.
        let stream = Stream(1_234_567);
        let first = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423_u64];
        for (index, expected) in first.into_iter().enumerate() {
            assert_eq!(stream.bits(index as u64), expected >> 11);
        }
    }

    /// Other ones would be other initial weights and other dropout masks, for the same seed.
    #[test]
    fn streams_begin_where_they_always_did() {
        assert_eq!(Stream::of_variable(1, "head.weight").bits(0), 5_923_311_592_020_740);
        assert_eq!(Stream::new(7, 3, "drop").bits(0), 6_781_599_471_316_634);
    }

    #[test]
    fn streams_differ_in_seed_call_and_name() {
        let streams = [(0, 0, ""), (1, 0, ""), (0, 1, ""), (0, 0, "a"), (1, 1, "a"), (0, 0, "b")];
        let variables = [(0, ""), (1, ""), (0, "a"), (1, "a")].map(|(s, n)| Stream::of_variable(s, n));
        let streams = streams.map(|(s, c, n)| Stream::new(s, c, n)).into_iter().chain(variables);
        let first: Vec<u64> = streams.map(|stream| stream.bits(0)).collect();
        for (i, bits) in first.iter().enumerate() {
            assert!(!first[..i].contains(bits), "stream {i} is another one's");
        }
    }

    #[test]
    fn uniform_numbers_have_the_mean_and_variance_of_the_unit_interval() {
        let stream = Stream::new(7, 0, "x");
        let n = 100_000;
        let values: Vec<f64> = (0..n).map(|i| stream.uniform(i)).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 0.004 && (variance - 1. / 12.).abs() < 0.001, "{mean} {variance}");
        assert!(values.iter().all(|v| (0. ..1.).contains(v)));
    }
}
