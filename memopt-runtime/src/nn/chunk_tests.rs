//! Windows in chunks, newest first, with shared sums: the same bits as the whole window.

use super::{
    AdaptiveAvgPool2d, AvgPool2d, BatchNorm, BatchNormConfig, Conv1d, Conv2d, ConvConfig, LayerNorm,
    LayerNormConfig, Linear, LinearConfig, MaxPool2d,
};
use crate::autograd::{backward_from, Gradient};
use crate::module::{Accumulators, Checkpointable, Context, Record, Session};
use crate::parameters::parameters;
use crate::storage::{copy_of, into_tensor, same_bits};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;

fn random(shape: &[usize], dtype: DType, seed: u64) -> Tensor {
    let init = candle_nn::Init::Uniform { lo: -1., up: 1. };
    let values = super::init::values(init, &shape.into(), seed, "test");
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

fn builder(seed: u64, dtype: DType) -> VarBuilder<'static> {
    super::init::seeded(&VarMap::new(), seed, dtype, &Device::Cpu)
}

/// What a window gives: outputs, gradients of the input, gradients of the weights.
struct Given(Vec<Tensor>);

impl Given {
    #[track_caller]
    fn assert_same(&self, other: &Given) {
        assert_eq!(self.0.len(), other.0.len());
        for (index, (a, b)) in self.0.iter().zip(&other.0).enumerate() {
            assert_eq!((a.dims(), a.dtype()), (b.dims(), b.dtype()), "{index}");
            assert!(same_bits(a, b), "{index}");
        }
    }
}

fn whole(layer: &impl Checkpointable, x: &Tensor, dy_seed: u64, context: &Context) -> Given {
    let x = Var::from_tensor(x).unwrap();
    let y = layer.forward(x.as_tensor().into(), &mut context.clone()).unwrap().into_dense("").unwrap();
    let dy = random(y.dims(), y.dtype(), dy_seed);
    let store = backward_from(vec![(y.clone(), dy.into())]).unwrap();
    let mut given = vec![y.detach(), store.get(&x).unwrap().clone()];
    given.extend(parameters(layer).iter().map(|(_, parameter)| store.get(parameter).unwrap().clone()));
    Given(given)
}

/// In chunks of these lengths; the negative control goes back through the oldest chunk first.
fn chunked(
    layer: &impl Checkpointable,
    x: &Tensor,
    dy_seed: u64,
    context: &Context,
    lengths: &[usize],
    newest_first: bool,
) -> Given {
    let accumulators = Arc::new(Accumulators::new().unwrap());
    let context = context.recompute(Arc::default(), Some(accumulators.clone()));
    let mut chunks = Vec::new();
    let mut start = 0;
    for &length in lengths {
        let part = x.narrow(0, start, length).unwrap();
        let part = into_tensor(copy_of(&part).unwrap().unwrap(), part.shape(), true);
        let y = layer.forward((&part).into(), &mut context.clone()).unwrap().into_dense("").unwrap();
        chunks.push((part, y, start, length));
        start += length;
    }
    let outputs: Vec<Tensor> = chunks.iter().map(|(_, y, ..)| y.detach()).collect();
    let y = Tensor::cat(&outputs, 0).unwrap();
    let dy = random(y.dims(), y.dtype(), dy_seed);
    let mut gradients = vec![None; chunks.len()];
    let order: Vec<usize> = match newest_first {
        true => (0..chunks.len()).rev().collect(),
        false => (0..chunks.len()).collect(),
    };
    for index in order {
        let (x, y, start, length) = &chunks[index];
        let dy = dy.narrow(0, *start, *length).unwrap();
        let store = backward_from(vec![(y.clone(), dy.into())]).unwrap();
        gradients[index] = Some(store.get(x).unwrap().clone());
    }
    let gradients: Vec<Tensor> = gradients.into_iter().flatten().collect();
    let mut given = vec![y, Tensor::cat(&gradients, 0).unwrap()];
    for (_, parameter) in parameters(layer) {
        let mut sums = accumulators.of(parameter.id());
        assert_eq!(sums.len(), 1);
        given.push(Gradient::new(sums.remove(0), parameter.shape()).into_tensor());
    }
    Given(given)
}

fn check(layer: &impl Checkpointable, shape: &[usize], dtype: DType, lengths: &[usize], seed: u64) {
    for context in [Context::training(&Session::new(0)), Context::evaluation(&Session::new(0))] {
        if !layer.is_time_chunkable() && context.is_training() {
            continue;
        }
        let shape = [&[lengths.iter().sum()], shape].concat();
        let x = random(&shape, dtype, seed);
        let expected = whole(layer, &x, seed + 1, &context);
        chunked(layer, &x, seed + 1, &context, lengths, true).assert_same(&expected);
    }
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::F64, DType::BF16, DType::F16])
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..4usize, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn convolutions_in_chunks(
        (stride, padding, groups) in (1..3usize, 0..2usize, 1..3usize),
        (inputs, outputs, images) in (1..20usize, 1..36usize, 1..4usize),
        (dtype, lengths) in (dtypes(), lengths()),
        seed in 0..u64::MAX / 2,
    ) {
        let config = ConvConfig::default().stride(stride).padding(padding).groups(groups);
        let vb = builder(seed, dtype);
        let conv = Conv2d::new(groups * inputs, groups * outputs, 3, config, vb.pp("2")).unwrap();
        check(&conv, &[images, groups * inputs, 7, 5], dtype, &lengths, seed);
        let config = ConvConfig::default().stride(stride).padding(padding).groups(groups);
        let conv = Conv1d::new(groups * inputs, groups * outputs, 1, config, vb.pp("1")).unwrap();
        check(&conv, &[images, groups * inputs, 7], dtype, &lengths, seed);
    }

    #[test]
    fn linear_in_chunks(
        (inputs, outputs, images, rows) in (1..600usize, 1..70usize, 1..4usize, 1..70usize),
        (dtype, lengths) in (dtypes(), lengths()),
        seed in 0..u64::MAX / 2,
    ) {
        let layer = Linear::new(inputs, outputs, LinearConfig::default(), builder(seed, dtype)).unwrap();
        check(&layer, &[images, inputs], dtype, &lengths, seed);
        check(&layer, &[images, rows, inputs], dtype, &lengths, seed);
    }

    #[test]
    fn norms_and_pools_in_chunks(
        (channels, images) in (1..20usize, 1..4usize),
        (dtype, lengths) in (dtypes(), lengths()),
        seed in 0..u64::MAX / 2,
    ) {
        let vb = builder(seed, dtype);
        let shape = [images, channels, 5, 6];
        let norm = BatchNorm::new(channels, BatchNormConfig::default(), vb.pp("b")).unwrap();
        check(&norm, &shape, dtype, &lengths, seed);
        let norm = LayerNorm::new(&[5, 6], LayerNormConfig::default(), vb.pp("l")).unwrap();
        check(&norm, &shape, dtype, &lengths, seed);
        check(&AvgPool2d::new(2), &shape, dtype, &lengths, seed);
        check(&MaxPool2d::new(3).stride(2).padding(1), &shape, dtype, &lengths, seed);
        check(&AdaptiveAvgPool2d::new(4), &shape, dtype, &lengths, seed);
    }
}

/// The control of the tests above: another order of the chunks is another sum.
#[test]
fn the_order_of_chunks_shows() {
    let context = Context::training(&Session::new(0));
    let vb = builder(1, DType::F32);
    let conv = Conv2d::new(3, 8, 3, ConvConfig::default(), vb.pp("c")).unwrap();
    let linear = Linear::new(6, 8, LinearConfig::default(), vb.pp("l")).unwrap();
    let x = random(&[6, 2, 3, 6, 6], DType::F32, 2);
    let differs = |a: Given, b: Given| !same_bits(&a.0[2], &b.0[2]) && !same_bits(&a.0[3], &b.0[3]);
    let lengths = [2, 1, 3];
    assert!(differs(whole(&conv, &x, 3, &context), chunked(&conv, &x, 3, &context, &lengths, false)));
    assert!(differs(whole(&linear, &x, 3, &context), chunked(&linear, &x, 3, &context, &lengths, false)));
}

#[test]
fn a_recompute_uses_the_recorded_statistics_and_moves_nothing() {
    let norm = BatchNorm::new(3, BatchNormConfig::default(), builder(1, DType::F32)).unwrap();
    let record = Arc::new(Mutex::new(Record::default()));
    let forward = |x: &Tensor, training: bool| {
        let session = Session::new(0);
        let context = if training { Context::training(&session) } else { Context::evaluation(&session) };
        let mut context = context.recompute(record.clone(), None);
        norm.forward(x.into(), &mut context).unwrap().into_dense("").unwrap().detach()
    };
    let x = random(&[4, 2, 3, 5], DType::F32, 2);
    let first = forward(&x, true);
    let moved = (norm.running_mean().unwrap(), norm.running_var().unwrap());
    assert_ne!(moved.0.to_vec1::<f32>().unwrap(), [0.; 3]);
    assert!(same_bits(&first, &forward(&x, true)));
    // A chunk of the window is normalized with the statistics of the whole.
    let chunk = forward(&x.narrow(0, 1, 2).unwrap(), true);
    let part = into_tensor(copy_of(&first.narrow(0, 1, 2).unwrap()).unwrap().unwrap(), chunk.shape(), false);
    assert!(same_bits(&chunk, &part));
    assert!(same_bits(&moved.0, &norm.running_mean().unwrap()));
    assert!(same_bits(&moved.1, &norm.running_var().unwrap()));
}

#[test]
fn an_evaluation_is_repeated_though_the_running_statistics_have_moved() {
    let norm = BatchNorm::new(3, BatchNormConfig::default(), builder(1, DType::F32)).unwrap();
    let record = Arc::new(Mutex::new(Record::default()));
    let x = random(&[4, 2, 3, 5], DType::F32, 2);
    let evaluate = || {
        let mut context = Context::evaluation(&Session::new(0)).recompute(record.clone(), None);
        norm.forward((&x).into(), &mut context).unwrap().into_dense("").unwrap().detach()
    };
    let first = evaluate();
    norm.forward((&x).into(), &mut Context::training(&Session::new(0))).unwrap();
    assert!(same_bits(&first, &evaluate()));
}
