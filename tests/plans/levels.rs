//! The vector instructions do not show in a training step: one hash under every level.
//!
//! The level is read once in a process, so that each has one of its own: this test again, for one of its tests.

use super::nets::{Block, Kind};
use super::support::{norm, session, train, Data};
use candle_core::DType;
use candle_nn::VarBuilder;
use memopt::compress::kernels::SimdLevel;
use memopt::nn::{BatchNorm2d, Conv2d, Conv2dConfig, Flatten, Lif, Linear, LinearConfig};
use memopt::plan::{Keep, Plan};
use memopt::Checkpointable;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

const CHANNELS: usize = 40;
const SIDE: usize = 6;

/// Layers of every kernel: tiles and spikes of 3x3, spikes of 1x1, rows of spikes, norms and neurons.
#[derive(Clone, Checkpointable)]
#[spatial_split(first, second, point, point_norm, point_neuron, flatten, hidden, hidden_neuron, head)]
struct Model {
    first: Block,
    second: Block,
    point: Conv2d,
    point_norm: BatchNorm2d,
    point_neuron: Lif,
    flatten: Flatten,
    hidden: Linear,
    hidden_neuron: Lif,
    head: Linear,
}

impl Model {
    fn new(vb: VarBuilder) -> memopt::Result<Self> {
        let neuron = || Ok::<_, memopt::Error>(Lif::new(2.)?.decay_input(false));
        let linear = |from, to, name| Linear::new(from, to, LinearConfig::default(), vb.pp(name));
        Ok(Model {
            first: Block::new(CHANNELS, CHANNELS, Kind::Plif, 3, vb.pp("first"))?,
            second: Block::new(CHANNELS, CHANNELS, Kind::Lif, 3, vb.pp("second"))?,
            point: Conv2d::new(CHANNELS, CHANNELS, 1, Conv2dConfig::default(), vb.pp("point"))?,
            point_norm: norm(CHANNELS, vb.pp("point_norm"))?,
            point_neuron: neuron()?,
            flatten: Flatten,
            hidden: linear(CHANNELS * SIDE * SIDE, CHANNELS, "hidden")?,
            hidden_neuron: neuron()?,
            head: linear(CHANNELS, 4, "head")?,
        })
    }
}

/// For the processes of the other test.
#[test]
#[ignore = "prints a hash; run by `a_training_step_has_one_hash_under_all_levels`"]
fn one_step() {
    let plan = Plan::new().with("first", Keep::Recompute).with("second", Keep::ChannelChunks(2));
    let data = Data::new(2, &[3, 2, CHANNELS, SIDE, SIDE], DType::F32, 7);
    let record = train(Model::new, plan, session(false), &data).unwrap();
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    println!("<{:?} {:x}>", SimdLevel::detected(), hasher.finish());
}

#[test]
fn a_training_step_has_one_hash_under_all_levels() {
    let step = |level: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "levels::one_step", "--ignored", "--nocapture"])
            .env("MEMOPT_SIMD", level)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let printed = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
        let (level, hash) = printed.and_then(|(printed, _)| printed.split_once(' ')).expect(&text);
        (level.to_owned(), hash.to_owned())
    };
    let [portable, avx2, avx512] = ["portable", "avx2", "avx512"].map(step);
    assert_eq!(portable.0, "Portable");
    assert_eq!(portable.1, avx2.1, "{} and {}", portable.0, avx2.0);
    assert_eq!(portable.1, avx512.1, "{} and {}", portable.0, avx512.0);
}
