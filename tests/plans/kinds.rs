//! Networks of every kind of block, under plans of every kind.

use super::nets::Setup;
use super::support::*;
use candle_core::DType;
use candle_nn::VarMap;
use memopt::checkpoint::plan_for_targets;
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::plan::{Keep, Plan};

#[test]
fn marked_blocks_are_the_targets() {
    let net = Setup::default().build(seeded(&VarMap::new(), 0, DType::F32, CPU)).unwrap();
    let plan = plan_for_targets(&net, Keep::TimeChunks(2));
    let paths: Vec<&str> = plan.segments().map(|(path, _)| path).collect();
    let expected =
        ["pieces.0", "pieces.2", "pieces.3.first", "pieces.3.second", "pieces.4.first", "pieces.4.second"];
    assert_eq!(paths, expected);
}

#[test]
fn plans_of_every_kind_give_the_same_bits() {
    let setup = Setup::default();
    let nested = setup.plan(Keep::Recompute).with("pieces", Keep::Recompute);
    let mut plans =
        vec![setup.plan(Keep::Recompute), setup.split(), nested.with("pieces.0.proj", Keep::Recompute)];
    plans.extend([1, 2, 3, 5, 9].map(|chunks| setup.plan(Keep::TimeChunks(chunks))));
    let ranges =
        ["pieces: gc", "pieces.0..2: gc", "pieces.0..2: tcgc:2", "pool..head: tcgc:2", "pieces..head: gc"];
    plans.extend(ranges.map(|plan| plan.parse().unwrap()));
    let plain = setup.check(plans, false);
    assert!(alive(&plain) > 40);
    // Another seed of the session: the dropout differs, so the comparison can fail.
    assert!(!differing(&setup.train(Plan::new(), Session::new(8)).unwrap(), &plain).is_empty());
}

#[test]
fn channel_chunks_give_the_same_bits() {
    let setup = Setup::wide();
    for carry in [false, true] {
        let mut plans = Vec::from([1, 2, 3, 9].map(|chunks| setup.plan(Keep::ChannelChunks(chunks))));
        plans.push("pieces.0: ccgc:2\npieces.1: tcgc:2\npieces: gc".parse().unwrap());
        setup.check(plans, carry);
    }
}
