//! The norms of candle-nn as parts of a model: values against candle-nn's own, gradients against differences and Candle's
//! autograd, plans against plain, running statistics, what is refused.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, Module, ModuleT, Tensor, Var};
use candle_nn::{BatchNorm, BatchNormConfig, LayerNorm, LayerNormConfig, VarMap};
use common::{assert_same, bits, gradient, Values};
use memopt::autograd::backward_from;
use memopt::checkpoint::Planned;
use memopt::module::{Checkpointable, Context, Session};
use memopt::nn::init::seeded;
use memopt::nn::{AvgPool2d, Conv2d, Conv2dConfig, Flatten, Lif, Linear, LinearConfig};
use memopt::parameters::parameters;
use memopt::plan::{Keep, Plan};
use memopt::prelude::*;
use memopt::Error;

const CPU: &Device = &Device::Cpu;

fn training() -> Context {
    Context::training(&Session::new(0))
}

fn evaluation() -> Context {
    Context::evaluation(&Session::new(0))
}

fn forward(layer: &impl Checkpointable, x: &Tensor, mut context: Context) -> memopt::Result<Tensor> {
    context.enter("norm", |context| layer.forward(x.into(), context))?.into_dense("norm")
}

/// Gives the variables of a layer random values.
fn scramble(layer: &impl Parameters, values: &mut Values) {
    for (_, parameter) in parameters(layer) {
        let random = values.tensor(parameter.dims(), parameter.dtype()).unwrap();
        Var::from_tensor(&parameter).unwrap().set(&random).unwrap();
    }
}

/// With and without a bias, and with and without the mean's removal.
fn layer_norms(size: usize, dtype: DType) -> Vec<LayerNorm> {
    let mut norms = Vec::new();
    for (remove_mean, affine) in [(true, true), (true, false), (false, true), (false, false)] {
        let config = LayerNormConfig { eps: 1e-3, remove_mean, affine };
        let norm = candle_nn::layer_norm(size, config, seeded(&VarMap::new(), 1, dtype, CPU)).unwrap();
        assert_eq!((norm.remove_mean(), norm.bias().is_some()), (remove_mean, affine));
        scramble(&norm, &mut Values::new(7));
        norms.push(norm);
    }
    norms
}

fn batch_norm(config: BatchNormConfig, dtype: DType) -> BatchNorm {
    let norm = candle_nn::batch_norm(3, config, seeded(&VarMap::new(), 1, dtype, CPU)).unwrap();
    scramble(&norm, &mut Values::new(7));
    norm
}

#[track_caller]
fn assert_close(a: &Tensor, b: &Tensor, tolerance: f64) {
    assert_eq!((a.dims(), a.dtype()), (b.dims(), b.dtype()));
    let wide = |t: &Tensor| t.detach().to_dtype(DType::F64).unwrap();
    let difference = (wide(a) - wide(b)).unwrap().abs().unwrap().max_all().unwrap();
    let difference = difference.to_scalar::<f64>().unwrap();
    assert!(difference <= tolerance, "{difference}");
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        _ => 0.04,
    }
}

#[test]
fn layer_norm_has_the_values_of_candles_own() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let view = Values::new(1).tensor(&[4, 2, 10, 3], dtype).unwrap().transpose(2, 3).unwrap();
        for norm in layer_norms(10, dtype) {
            for x in [view.contiguous().unwrap(), view.clone()] {
                if dtype == DType::F64 && x.is_contiguous() && norm.remove_mean() && norm.bias().is_some() {
                    continue; // Candle's fused layer norm has no f64.
                }
                for context in [training(), evaluation()] {
                    let y = forward(&norm, &x, context).unwrap();
                    assert_close(&y, &Module::forward(&norm, &x).unwrap(), tolerance(dtype));
                }
            }
        }
    }
}

#[test]
fn batch_norm_has_the_values_and_running_statistics_of_candles_own() {
    for dtype in [DType::F32, DType::F64] {
        for affine in [true, false] {
            let config = BatchNormConfig { eps: 1e-3, momentum: 0.3, affine, ..Default::default() };
            let (ours, theirs) = (batch_norm(config, dtype), batch_norm(config, dtype));
            for (step, shape) in [&[4, 2, 3][..], &[4, 2, 3, 5], &[4, 2, 3, 5, 2]].into_iter().enumerate() {
                let x = Values::new(step as u64).tensor(shape, dtype).unwrap().affine(2., 0.5).unwrap();
                let flat = x.flatten(0, 1).unwrap();
                for train in [true, false] {
                    let context = if train { training() } else { evaluation() };
                    let y = forward(&ours, &x, context).unwrap().flatten(0, 1).unwrap();
                    assert_close(&y, &theirs.forward_t(&flat, train).unwrap(), tolerance(dtype));
                }
                assert_close(ours.running_mean(), theirs.running_mean(), tolerance(dtype));
                assert_close(ours.running_var(), theirs.running_var(), tolerance(dtype));
            }
        }
    }
}

/// Gradients of input and parameters for a random gradient of the output.
fn gradients(layer: &impl Checkpointable, x: &Tensor, context: Context) -> (Tensor, Vec<Tensor>) {
    let x = Var::from_tensor(&x.detach().copy().unwrap()).unwrap();
    let y = forward(layer, &x, context).unwrap();
    let dy = Values::new(5).tensor(y.dims(), y.dtype()).unwrap();
    let store = backward_from(vec![(y, dy.into())]).unwrap();
    let of = |t: &Tensor| store.get(t).unwrap().clone();
    (of(&x), parameters(layer).iter().map(|(_, parameter)| of(parameter)).collect())
}

/// Compares the gradients along random directions with central differences.
fn check_by_differences(layer: &impl Checkpointable, shape: &[usize], context: fn() -> Context) {
    let mut values = Values::new(3);
    let x = values.tensor(shape, DType::F64).unwrap();
    let dy = Values::new(5).tensor(shape, DType::F64).unwrap();
    let (dx, of_parameters) = gradients(layer, &x, context());
    let dot = |a: &Tensor, b: &Tensor| (a * b).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap();
    let loss = |x: &Tensor| dot(&forward(&layer.detached(), x, context()).unwrap(), &dy);
    let variables = parameters(layer).into_iter().map(|(_, parameter)| Var::from_tensor(&parameter).unwrap());
    let variables = variables.map(Some).zip(of_parameters);
    let input = Var::from_tensor(&x).unwrap();
    for (variable, gradient) in std::iter::once((None, dx)).chain(variables) {
        let moved = variable.as_ref().unwrap_or(&input);
        let start = moved.as_detached_tensor().copy().unwrap();
        let direction = values.tensor(start.dims(), DType::F64).unwrap();
        let at = |step: f64| {
            moved.set(&(&start + direction.affine(step, 0.).unwrap()).unwrap()).unwrap();
            loss(&input.as_detached_tensor())
        };
        let (numeric, analytic) = ((at(1e-6) - at(-1e-6)) / 2e-6, dot(&gradient, &direction));
        moved.set(&start).unwrap();
        assert!((numeric - analytic).abs() < 1e-6 * (1. + analytic.abs()), "{numeric} is not {analytic}");
    }
}

#[test]
fn gradients_are_those_of_differences() {
    for norm in layer_norms(5, DType::F64) {
        check_by_differences(&norm, &[3, 2, 5], training);
        check_by_differences(&norm, &[2, 2, 3, 5], training);
    }
    for affine in [true, false] {
        let norm = batch_norm(BatchNormConfig { affine, ..Default::default() }, DType::F64);
        check_by_differences(&norm, &[3, 2, 3], training);
        check_by_differences(&norm, &[3, 2, 3, 4], training);
        check_by_differences(&norm, &[3, 2, 3, 4], evaluation);
    }
}

#[test]
fn batch_norm_has_the_gradients_of_candles_own() {
    let norm = batch_norm(BatchNormConfig::default(), DType::F64);
    let x = Values::new(1).tensor(&[4, 2, 3, 5], DType::F64).unwrap();
    let (dx, of_parameters) = gradients(&norm, &x, training());
    let x = Var::from_tensor(&x).unwrap();
    let y = norm.forward_t(&x.flatten(0, 1).unwrap(), true).unwrap().reshape(x.shape()).unwrap();
    let dy = Values::new(5).tensor(x.dims(), DType::F64).unwrap();
    let store = (y * dy).unwrap().sum_all().unwrap().backward().unwrap();
    assert_close(&dx, store.get(&x).unwrap(), 1e-12);
    for ((_, parameter), gradient) in parameters(&norm).iter().zip(&of_parameters) {
        assert_close(gradient, store.get(parameter).unwrap(), 1e-12);
    }
}

#[test]
fn twins_are_detached_and_the_same() {
    let x = Values::new(1).tensor(&[4, 2, 5], DType::F32).unwrap();
    for norm in layer_norms(5, DType::F32) {
        let twin = norm.detached();
        assert!(parameters(&twin).is_empty() && !parameters(&norm).is_empty());
        let y = forward(&twin, &x, training()).unwrap();
        assert!(!y.track_op());
        assert_same(&y, &forward(&norm, &x, training()).unwrap().detach());
    }
    let x = Values::new(1).tensor(&[4, 2, 3], DType::F32).unwrap();
    for affine in [true, false] {
        let config = BatchNormConfig { eps: 1e-2, momentum: 0.4, affine, ..Default::default() };
        let norm = batch_norm(config, DType::F32);
        let twin = norm.detached();
        assert!(parameters(&twin).is_empty());
        let y = forward(&twin, &x, training()).unwrap();
        assert!(!y.track_op());
        // One forward through the twin has moved the statistics of both.
        assert_eq!(norm.running_mean().id(), twin.running_mean().id());
        assert_ne!(norm.running_mean().to_vec1::<f32>().unwrap(), [0.; 3]);
        assert_same(&y, &forward(&norm, &x, training()).unwrap().detach());
        let names: Vec<String> = parameters(&norm).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, if affine { vec!["weight", "bias"] } else { vec![] });
    }
}

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, bn, neuron)]
struct Block {
    conv: Conv2d,
    bn: BatchNorm,
    neuron: Lif,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(head, norm, rms)]
struct Head {
    head: Linear,
    norm: LayerNorm,
    rms: LayerNorm,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(blocks, pool, flatten, head)]
struct Net {
    blocks: Vec<Block>,
    pool: AvgPool2d,
    flatten: Flatten,
    head: Head,
}

/// More channels than are computed together, so that channel chunks really cut.
const CHANNELS: usize = 40;

fn net(variables: &VarMap, config: BatchNormConfig) -> Net {
    let vb = seeded(variables, 1, DType::F32, CPU);
    let block = |from, index: usize| {
        let vb = vb.pp("blocks").pp(index);
        let padded = Conv2dConfig::default().padding(1);
        Block {
            conv: Conv2d::new(from, CHANNELS, 3, padded, vb.pp("conv")).unwrap(),
            bn: candle_nn::batch_norm(CHANNELS, config, vb.pp("bn")).unwrap(),
            neuron: Lif::default().v_threshold(0.5),
        }
    };
    let rms = LayerNormConfig { remove_mean: false, affine: false, ..Default::default() };
    let inside = vb.pp("head");
    Net {
        blocks: vec![block(2, 0), block(CHANNELS, 1)],
        pool: AvgPool2d::new(2),
        flatten: Flatten,
        head: Head {
            head: Linear::new(CHANNELS * 4, 6, LinearConfig::default(), inside.pp("head")).unwrap(),
            norm: candle_nn::layer_norm(6, 1e-5, inside.pp("norm")).unwrap(),
            rms: candle_nn::layer_norm(6, rms, inside.pp("rms")).unwrap(),
        },
    }
}

/// Losses, gradients and variables (running statistics are among them) of some steps under a plan.
fn train(plan: Plan) -> memopt::Result<Vec<Vec<u64>>> {
    let variables = VarMap::new();
    let net = Planned::new(net(&variables, BatchNormConfig::default()), plan, Session::new(0))?;
    let mut named: Vec<(String, Var)> = variables.data().lock().unwrap().clone().into_iter().collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut values, mut record) = (Values::new(2), Vec::new());
    for _ in 0..2 {
        let x = (values.tensor(&[4, 2, 2, 4, 4], DType::F32)? * 2.)?;
        let loss = net.forward_t(&x, true)?.affine(1., -0.5)?.sqr()?.mean_all()?;
        let gradients = loss.backward()?;
        record.push(bits(&loss));
        for (_, v) in &named {
            record.push(gradient(&gradients, v).map_or(vec![], |g| g.2));
            if let Some(g) = gradients.get(v) {
                v.set(&(v.as_tensor() - (g * 0.1)?)?.detach())?;
            }
        }
        record.extend(named.iter().map(|(_, v)| bits(v)));
    }
    record.push(bits(&net.forward_t(&values.tensor(&[4, 2, 2, 4, 4], DType::F32)?, false)?));
    Ok(record)
}

#[test]
fn every_plan_gives_the_bits_of_plain() {
    let plain = train(Plan::new()).unwrap();
    assert!(plain.iter().filter(|bits| !bits.is_empty()).count() > plain.len() / 2);
    let blocks = |keep| Plan::new().with("blocks.0", keep).with("blocks.1", keep);
    for plan in [
        blocks(Keep::Recompute).with("head", Keep::Recompute),
        blocks(Keep::TimeChunks(2)).with("head", Keep::TimeChunks(3)),
        blocks(Keep::ChannelChunks(2)).with("head", Keep::TimeChunks(4)),
        blocks(Keep::Recompute).with("blocks", Keep::Recompute),
    ] {
        let ours = train(plan.clone()).unwrap();
        let differing: Vec<usize> = (0..plain.len()).filter(|&i| plain[i] != ours[i]).collect();
        assert_eq!((ours.len(), differing), (plain.len(), vec![]), "{plan}");
    }
}

#[test]
fn running_statistics_move_once_in_a_step() {
    let variables = VarMap::new();
    let plan = Plan::new().with("blocks.0", Keep::Recompute).with("blocks", Keep::Recompute);
    let net = Planned::new(net(&variables, BatchNormConfig::default()), plan, Session::new(0)).unwrap();
    let mean = || {
        let variables = variables.data().lock().unwrap();
        variables["blocks.1.bn.running_mean"].as_detached_tensor().copy().unwrap()
    };
    let x = Values::new(2).tensor(&[4, 2, 2, 4, 4], DType::F32).unwrap();
    let before = mean();
    let loss = net.forward_t(&x, true).unwrap().sum_all().unwrap();
    let moved = mean();
    assert_ne!(bits(&before), bits(&moved));
    loss.backward().unwrap();
    assert_same(&moved, &mean());
    net.forward_t(&x, false).unwrap();
    net.predict(x).unwrap();
    assert_same(&moved, &mean());
}

#[test]
fn a_batch_norm_that_does_not_remove_the_mean_is_refused() {
    let config = BatchNormConfig { remove_mean: false, ..Default::default() };
    let x = Tensor::ones((4, 2, 2, 4, 4), DType::F32, CPU).unwrap();
    for keep in [None, Some(Keep::Recompute), Some(Keep::TimeChunks(2)), Some(Keep::ChannelChunks(2))] {
        for train in [true, false] {
            let plan = keep.map_or(Plan::new(), |keep| Plan::new().with("blocks.0", keep));
            // Channel chunks ask for a slice of it when the plan is made.
            let error = match Planned::new(net(&VarMap::new(), config), plan, Session::new(0)) {
                Ok(net) => Error::from(net.forward_t(&x, train).unwrap_err()),
                Err(error) => error,
            };
            assert!(matches!(error.root(), Error::LayerInput { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("blocks.0") && text.contains("use `memopt::nn::BatchNorm`"), "{text}");
        }
    }
}

#[test]
fn inputs_that_do_not_fit() {
    let refuses = |error: Error, says: &str| {
        assert!(matches!(&error, Error::LayerInput { part, .. } if part == "norm"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let x = Tensor::ones((4, 2, 5), DType::F32, CPU).unwrap();
    for norm in layer_norms(4, DType::F32) {
        refuses(forward(&norm, &x, training()).unwrap_err(), "ends with [4]");
    }
    let matrix = Tensor::ones((2, 5), DType::F32, CPU).unwrap();
    let norm = LayerNorm::rms_norm(matrix, 1e-5);
    refuses(forward(&norm, &x, training()).unwrap_err(), "a weight [hidden] expected");
    refuses(forward(&norm.detached(), &x, training()).unwrap_err(), "a weight [hidden] expected");
    let norm = batch_norm(BatchNormConfig::default(), DType::F32);
    refuses(forward(&norm, &x, training()).unwrap_err(), "[T, N, 3, ...] expected");
}
