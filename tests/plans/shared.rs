//! One block at two places of a model: one weight in two segments, or twice in one.

use super::nets::{Block, Kind};
use super::support::*;
use candle_core::DType;
use candle_nn::VarBuilder;
use memopt::nn::Dropout;
use memopt::plan::Plan;
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(first, between, second)]
struct Tied {
    first: Block,
    between: Dropout,
    second: Block,
}

#[test]
fn its_gradients_are_summed_once() {
    for kind in [Kind::Lif, Kind::Plif] {
        let trained = |plan: Plan| {
            let build = |vb: VarBuilder| {
                let first = Block::new(2, 2, kind, 0, vb)?;
                Ok(Around { body: Tied { second: first.clone(), between: Dropout::new(0.3)?, first } })
            };
            train(build, plan, session(true), &Data::new(2, &[4, 2, 2, 4, 4], DType::F32, 5)).unwrap()
        };
        let plain = trained(Plan::new());
        assert!(alive(&plain) > 10);
        let mut plans = vec![
            "body: gc",
            "body.first: gc\nbody.second: gc",
            "body.second: gc",
            "body.first: tcgc:2\nbody.second: tcgc:3",
            "body: tcgc:2",
            "body: gc\nbody.first: gc\nbody.second.proj: gc",
            "body: gc\nbody.first: tcgc:2",
        ];
        if kind == Kind::Lif {
            plans.extend(["body.first: ccgc:2\nbody.second: gc", "body: gc\nbody.second: ccgc:2"]);
        }
        for plan in plans {
            assert_same_bits(&trained(plan.parse().unwrap()), &plain, format!("{kind:?}, under\n{plan}"));
        }
    }
}
