//! Large inputs that are kept as bits: unpacked some time steps at a time for the layers before the convolution, and not at
//! all without such. The bits are those of the whole.
#![allow(clippy::unwrap_used)]

mod common;

use candle_core::{DType, Device, ModuleT, Var};
use candle_nn::VarMap;
use common::{bits, gradient, Values};
use memopt::nn::init::seeded;
use memopt::nn::{AvgPool2d, BatchNorm2d, Conv2d, Conv2dConfig, Lif};
use memopt::prelude::*;
use memopt::Checkpointable;

/// Neurons and a pool before the convolution, where there are.
#[derive(Clone, Checkpointable)]
#[spatial_split(first, pool, conv, bn, neuron)]
struct Block {
    first: Option<Lif>,
    pool: Option<AvgPool2d>,
    conv: Conv2d,
    bn: BatchNorm2d,
    neuron: Lif,
}

#[test]
fn large_inputs_that_are_kept_as_bits_give_the_same_bits() {
    let run = |(from, to): (usize, usize), (fired, pooled): (bool, bool), plan: &str| {
        let variables = VarMap::new();
        let vb = seeded(&variables, 0, DType::F32, &Device::Cpu);
        let config = Conv2dConfig::default().padding(1);
        let block = Block {
            first: fired.then(|| Lif::new(2.).unwrap().v_threshold(0.4)),
            pool: pooled.then(|| AvgPool2d::new(2)),
            conv: Conv2d::new(from, to, 3, config, vb.pp("conv")).unwrap(),
            bn: BatchNorm2d::new(to, Default::default(), vb.pp("bn")).unwrap(),
            neuron: Lif::new(2.).unwrap().v_threshold(0.4),
        };
        let net = Planned::new(vec![block], plan.parse().unwrap(), Session::new(0)).unwrap();
        // 14 to 19 MB, of an odd number of images.
        let spikes = Values::new(1).spikes(&[7, 3, from, 48, 49], 0.2, DType::F32).unwrap();
        let x = Var::from_tensor(&spikes).unwrap();
        let loss = net.forward_t(&x, true).unwrap().sqr().unwrap().mean_all().unwrap();
        let gradients = loss.backward().unwrap();
        let mut named: Vec<_> = variables.data().lock().unwrap().clone().into_iter().collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let of = |v: &Var| gradient(&gradients, v).map(|g| g.2);
        let weights: Vec<_> = named.iter().map(|(_, v)| (of(v), bits(v))).collect();
        (bits(&loss), of(&x), weights)
    };
    let cases = [
        ((96, 40), (false, false)),
        ((72, 96), (false, false)),
        ((96, 33), (false, true)),
        ((96, 33), (true, true)),
    ];
    for (channels, before) in cases {
        let plain = run(channels, before, "");
        assert!(plain.1.as_ref().is_some_and(|dx| dx.iter().any(|bits| bits << 1 != 0)));
        for plan in ["0: gc bit", "0: ccgc:3 bit", "0: gc null"] {
            assert!(run(channels, before, plan) == plain, "{channels:?} {before:?} {plan}");
        }
    }
}
