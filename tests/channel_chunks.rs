//! Linear layers in groups of output features: the same bits as unoptimized, and an error where features are no channels.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, ModuleT, Tensor, Var};
use candle_nn::VarMap;
use common::{bits, gradient, Values};
use memopt::checkpoint::Planned;
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::nn::{BatchNorm1d, BatchNormConfig, Conv2d, Conv2dConfig, Flatten, Lif, Linear, LinearConfig};
use memopt::plan::{Keep, Plan};
use memopt::prelude::*;
use memopt::Error;

const CPU: &Device = &Device::Cpu;

#[derive(Clone, Checkpointable)]
#[spatial_split(flatten, linear, bn, neuron)]
struct Block {
    flatten: Option<Flatten>,
    linear: Linear,
    bn: BatchNorm1d,
    neuron: Lif,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(blocks, head)]
struct Net {
    blocks: Vec<Block>,
    head: Linear,
}

#[derive(Clone, Copy)]
struct Setup {
    /// Dimensions of the input behind `[T, N]`.
    input: &'static [usize],
    flattens: bool,
    /// Features of each block, and the channels of its norm.
    features: usize,
    channels: usize,
    bias: bool,
    dtype: DType,
}

impl Setup {
    fn net(&self, variables: &VarMap) -> Net {
        let vb = seeded(variables, 1, self.dtype, CPU);
        let mut inputs = match self.flattens {
            true => self.input.iter().product(),
            false => self.input[self.input.len() - 1],
        };
        let mut blocks = Vec::new();
        for i in 0..2 {
            let vb = vb.pp("blocks").pp(i);
            let config = LinearConfig::default().bias(self.bias);
            blocks.push(Block {
                flatten: (self.flattens && i == 0).then_some(Flatten),
                linear: Linear::new(inputs, self.features, config, vb.pp("linear")).unwrap(),
                bn: BatchNorm1d::new(self.channels, BatchNormConfig::default(), vb.pp("bn")).unwrap(),
                neuron: Lif::default().v_threshold(0.5),
            });
            inputs = self.features;
        }
        Net { blocks, head: Linear::new(inputs, 4, LinearConfig::default(), vb.pp("head")).unwrap() }
    }

    /// Losses, gradients and variables (running statistics are among them) of some steps under a plan.
    fn train(&self, plan: Plan) -> memopt::Result<Vec<Vec<u64>>> {
        let variables = VarMap::new();
        let net = Planned::new(self.net(&variables), plan, Session::new(0).carry_states())?;
        let mut named: Vec<(String, Var)> = variables.data().lock().unwrap().clone().into_iter().collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let (mut values, mut record) = (Values::new(2), Vec::new());
        for _ in 0..2 {
            // With ten images, other groups than the layer's own are other kernels of the product: other bits.
            let shape = [&[4, 10], self.input].concat();
            let x = Var::from_tensor(&(values.tensor(&shape, self.dtype)? * 2.)?)?;
            let loss = net.forward_t(&x, true)?.sqr()?.mean_all()?;
            let gradients = loss.backward()?;
            record.extend([bits(&loss), gradient(&gradients, &x).unwrap().2]);
            for (_, v) in &named {
                record.push(gradient(&gradients, v).map_or(vec![], |g| g.2));
                if let Some(g) = gradients.get(v) {
                    v.set(&(v.as_tensor() - (g * 0.1)?)?.detach())?;
                }
            }
            record.extend(named.iter().map(|(_, v)| bits(v)));
        }
        Ok(record)
    }
}

fn plan(keep: Keep) -> Plan {
    Plan::new().with("blocks.0", keep).with("blocks.1", keep)
}

#[track_caller]
fn same(setup: Setup, chunks: &[usize]) {
    let plain = setup.train(Plan::new()).unwrap();
    for &chunks in chunks {
        let ours = setup.train(plan(Keep::ChannelChunks(chunks))).unwrap();
        let differing: Vec<usize> = (0..plain.len()).filter(|&i| plain[i] != ours[i]).collect();
        assert_eq!(
            (ours.len(), differing),
            (plain.len(), vec![]),
            "ccgc:{chunks}, {} features",
            setup.features
        );
    }
}

#[test]
fn linear_layers_give_the_same_bits() {
    let of = |features: usize, bias: bool, dtype| Setup {
        input: &[20],
        flattens: false,
        features,
        channels: features,
        bias,
        dtype,
    };
    // Not more features than are computed together, some more, several groups; a last group of one, of two, a whole one.
    for features in [3, 33, 34, 64, 70, 97, 128] {
        same(of(features, true, DType::F32), &[1, 2, 3, 9]);
    }
    same(of(70, false, DType::F32), &[2, 3]);
    for dtype in [DType::F64, DType::BF16, DType::F16] {
        same(of(70, true, dtype), &[2, 3]);
    }
}

#[test]
fn layers_before_the_linear_one_run_as_a_whole() {
    let setup = Setup {
        input: &[2, 4, 5],
        flattens: true,
        features: 70,
        channels: 70,
        bias: true,
        dtype: DType::F32,
    };
    same(setup, &[1, 2, 3]);
}

/// `[T, N, 40, 40]`: as many tokens as features, so that only the number of dimensions tells.
#[test]
fn features_that_are_not_the_third_dimension_are_refused() {
    let setup =
        Setup { input: &[40, 6], flattens: false, features: 40, channels: 40, bias: true, dtype: DType::F32 };
    setup.train(plan(Keep::Recompute)).unwrap();
    for chunks in [1, 2] {
        let error = setup.train(plan(Keep::ChannelChunks(chunks))).unwrap_err();
        assert!(
            matches!(error.root(), Error::NotChannelChunkable { segment, what }
                if segment == "blocks.0" && what.contains("linear") && what.contains("third dimension")),
            "{error}"
        );
    }
}

#[test]
fn a_refused_window_leaves_the_running_statistics() {
    let setup =
        Setup { input: &[40, 6], flattens: false, features: 40, channels: 40, bias: true, dtype: DType::F32 };
    let variables = VarMap::new();
    let net = Planned::new(setup.net(&variables), plan(Keep::ChannelChunks(2)), Session::new(0)).unwrap();
    let x = Tensor::ones((2, 3, 40, 6), DType::F32, CPU).unwrap();
    assert!(net.forward_t(&x, true).is_err());
    let mean = variables.data().lock().unwrap()["blocks.0.bn.running_mean"].clone();
    assert_eq!(mean.to_vec1::<f32>().unwrap(), [0.; 40]);
}

/// Layers behind the neurons that see all channels: each could be run for some of its own outputs, but not of its inputs.
#[test]
fn a_second_layer_with_weights_is_refused() {
    #[derive(Clone, Checkpointable)]
    #[spatial_split(conv, bn, neuron, second)]
    struct Two {
        conv: Conv2d,
        bn: BatchNorm1d,
        neuron: Lif,
        second: Second,
    }

    #[derive(Clone, Checkpointable)]
    enum Second {
        Conv(Conv2d),
        Norm(BatchNorm1d),
    }

    let vb = seeded(&VarMap::new(), 1, DType::F32, CPU);
    let norm = |name: &str| BatchNorm1d::new(40, BatchNormConfig::default(), vb.pp(name)).unwrap();
    let conv = |from, name: &str| Conv2d::new(from, 40, 1, Conv2dConfig::default(), vb.pp(name)).unwrap();
    for second in [Second::Conv(conv(40, "second")), Second::Norm(norm("norm"))] {
        let two = Two { conv: conv(2, "conv"), bn: norm("bn"), neuron: Lif::default(), second };
        let plan = Plan::new().with("0", Keep::ChannelChunks(2));
        let error = Planned::new(vec![two], plan, Session::new(0)).err().unwrap();
        assert!(
            matches!(error.root(), Error::NotChannelChunkable { what, .. } if what.contains("second")),
            "{error}"
        );
    }
}
