//! Parts that need the whole window, and windows of few steps.

use super::nets::{Kind, Setup};
use super::support::*;
use memopt::module::Session;
use memopt::plan::{Keep, Plan};
use memopt::Error;

#[test]
fn whole_window_parts_give_the_same_bits() {
    let setup = Setup::of([Kind::Psn, Kind::Lif, Kind::Psn]);
    let mut plans = vec![setup.plan(Keep::Recompute), setup.split()];
    for plan in [
        "pieces: gc",
        "pieces.0..1: gc",
        "pieces.0.proj: tcgc:2\npieces.0.neuron: gc\npieces.1: tcgc:3",
        "pieces: gc\npieces.2: gc\npieces.2.neuron: gc",
    ] {
        plans.push(plan.parse().unwrap());
    }
    let plain = setup.check(plans, false);
    let of_psn = plain.iter().filter(|(name, _)| name.starts_with("gradient of pieces.2.neuron"));
    assert_eq!(alive(&of_psn.cloned().collect()), 4, "weight and bias in two steps");
}

#[test]
fn whole_window_parts_refuse_time_chunks() {
    let setup = Setup::of([Kind::Psn]);
    let error = setup.train(setup.plan(Keep::TimeChunks(2)), Session::new(0)).unwrap_err();
    assert!(
        matches!(error.root(), Error::NotTimeChunkable { segment, part } if segment == "pieces.0" && part == "0.neuron"),
        "{error}"
    );
}

#[test]
fn chunks_need_not_divide_the_window_nor_be_fewer_than_its_steps() {
    for steps in 1..=4 {
        let setup = Setup { steps, ..Setup::default() };
        setup.check([2, 3, 4, 7].map(|chunks| setup.plan(Keep::TimeChunks(chunks))), true);
    }
}

#[test]
fn a_window_of_no_steps_is_refused_under_every_plan() {
    let setup = Setup { steps: 0, ..Setup::wide() };
    let keeps = [Keep::Recompute, Keep::TimeChunks(1), Keep::TimeChunks(3), Keep::ChannelChunks(2)];
    for plan in keeps.map(|keep| setup.plan(keep)).into_iter().chain([Plan::new(), setup.split()]) {
        let error = setup.train(plan.clone(), Session::new(0)).unwrap_err();
        assert!(matches!(error.root(), Error::LayerInput { .. }), "{error}, under\n{plan}");
    }
}
