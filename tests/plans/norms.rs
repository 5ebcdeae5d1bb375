//! A neuron before the norm, several norms, layers without one: where the window is cut must not show.

use super::support::*;
use candle_nn::VarBuilder;
use memopt::nn::{BatchNorm2d, Conv2d, Flatten, Lif, Linear, LinearConfig, Plif};
use memopt::plan::{Keep, Plan};
use memopt::Checkpointable;

#[derive(Clone, Checkpointable)]
#[spatial_split(lif, conv, bn, plif, conv2, bn2, lif2, flatten, head)]
pub struct PreActivation {
    lif: Lif,
    conv: Conv2d,
    bn: BatchNorm2d,
    plif: Plif,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    lif2: Lif,
    flatten: Flatten,
    head: Linear,
}

pub fn pre_activation(vb: VarBuilder) -> memopt::Result<Around<PreActivation>> {
    let body = PreActivation {
        lif: Lif::new(2.)?.v_threshold(0.4),
        conv: conv(2, 2, vb.pp("conv"))?,
        bn: norm(2, vb.pp("bn"))?,
        plif: Plif::from_builder(2., vb.pp("plif"))?,
        conv2: conv(2, 2, vb.pp("conv2"))?,
        bn2: norm(2, vb.pp("bn2"))?,
        lif2: Lif::new(2.)?.v_threshold(0.4),
        flatten: Flatten,
        head: Linear::new(2 * 16, 3, LinearConfig::default(), vb.pp("head"))?,
    };
    Ok(Around { body })
}

#[test]
fn neurons_before_norms_and_several_norms_in_chunks() {
    for carry in [false, true] {
        let trained = |plan: Plan| {
            train(pre_activation, plan, session(carry), &Data::repeated(&[2, 2, 4, 4], 5)).unwrap()
        };
        let plain = trained(Plan::new());
        assert!(alive(&plain) > 30);
        let mut plans: Vec<Plan> =
            ["body: gc", "body.lif..bn: gc", "body.conv2..lif2: ccgc:2", "body.lif: gc\nbody.head: gc"]
                .map(|plan| plan.parse().unwrap())
                .into();
        for chunks in 1..=5 {
            let paths = ["", ".lif..bn", ".lif..plif", ".plif..bn2", ".conv..lif2", ".flatten..head"];
            plans.extend(paths.map(|path| Plan::new().with(format!("body{path}"), Keep::TimeChunks(chunks))));
        }
        for plan in plans {
            assert_same_bits(&trained(plan.clone()), &plain, format!("{plan}, carried {carry}"));
        }
    }
}
