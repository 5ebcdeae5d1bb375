//! How the inputs of segments are kept.

use super::nets::{Block, Kind, Setup};
use super::support::*;
use candle_core::{DType, Tensor};
use candle_nn::VarBuilder;
use memopt::compress::{counts, SegmentCounts};
use memopt::module::Session;
use memopt::plan::{Compressor, Keep, Plan};
use memopt::Checkpointable;

fn of(path: &str) -> SegmentCounts {
    counts().into_iter().find(|counts| counts.segment == path).unwrap()
}

#[test]
fn spikes_are_kept_as_bits() {
    // Deeper than the other tests' networks, so that the counts of the last path are this test's.
    let setup = Setup::of([Kind::Lif; 7]);
    setup.train(setup.plan(Keep::Recompute), Session::new(0)).unwrap();
    let counts = of("pieces.6");
    assert!(counts.encodings.contains_key("bit") || counts.encodings.contains_key("sparse"));
    assert!(counts.kept_bytes * 16 < counts.raw_bytes);
}

/// With a path of its own.
#[derive(Clone, Checkpointable)]
#[spatial_split(odd)]
struct Odd {
    odd: Block,
}

#[test]
fn what_is_declared_to_be_spikes_and_is_not_is_kept_exactly_and_counted() {
    let values = [2f32, 0.5, -1., -0.0, 1., 0., 255., 1e-30];
    let window: Vec<f32> = values.into_iter().cycle().take(4 * 2 * 2 * 16).collect();
    let window = Tensor::from_vec(window, (4, 2, 2, 4, 4), CPU).unwrap();
    let data = Data { leaf: None, windows: vec![window] };
    let trained = |plan| {
        let build = |vb: VarBuilder| Ok(Odd { odd: Block::new(2, 2, Kind::Lif, 0, vb)? });
        train(build, plan, session(false), &data).unwrap()
    };
    let plain = trained(Plan::new());
    for keep in [Keep::Recompute, Keep::TimeChunks(3), Keep::ChannelChunks(2)] {
        for compressor in [Compressor::Bit, Compressor::Byte, Compressor::Sparse] {
            let before = counts().iter().filter(|c| c.segment == "odd").map(|c| c.fallbacks).sum::<u64>();
            let ours = trained(Plan::new().with("odd", (keep, compressor.clone())));
            assert_same_bits(&ours, &plain, format!("{keep} {compressor}"));
            assert!(compressor == Compressor::Sparse || of("odd").fallbacks > before, "{keep} {compressor}");
        }
    }
}

#[test]
fn dtypes_survive() {
    for dtype in [DType::BF16, DType::F64] {
        let spikes = super::common::Values::new(1).spikes(&[4, 2, 2, 4, 4], 0.3, dtype).unwrap();
        let data = Data { leaf: None, windows: vec![spikes] };
        let trained = |plan: Plan| {
            let build = |vb: VarBuilder| Ok(Around { body: Block::new(2, 2, Kind::Plif, 0, vb)? });
            train(build, plan, session(false), &data).unwrap()
        };
        let plain = trained(Plan::new());
        for compressor in ["null", "bit", "byte", "sparse", "auto"] {
            let ours = trained(format!("body: gc {compressor}").parse().unwrap());
            assert_same_bits(&ours, &plain, format!("{dtype:?} {compressor}"));
        }
    }
}
