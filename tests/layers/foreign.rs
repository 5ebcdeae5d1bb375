//! Layers of candle-nn as parts of a model.

use super::common::{assert_same, Values};
use super::support::{forward, run, training, variable, CPU};
use candle_core::{DType, Module, Tensor};
use candle_nn::{Activation, Conv1dConfig, Conv2dConfig, VarMap};
use memopt::module::Checkpointable;
use memopt::nn::init;

fn check(layer: &(impl Checkpointable + Module), shape: &[usize]) {
    let x = Values::new(1).tensor(shape, DType::F32).unwrap();
    let got = run(layer, &x, |y| y.clone(), &mut training());
    assert_eq!(got.y.dims()[..2], shape[..2]);
    let flat = variable(&x.flatten(0, 1).unwrap());
    let y = Module::forward(layer, &flat).unwrap();
    let store = (&y * y.detach()).unwrap().sum_all().unwrap().backward().unwrap();
    assert_same(&got.y.flatten(0, 1).unwrap(), &y.detach());
    assert_same(&got.dx.flatten(0, 1).unwrap(), store.get(&flat).unwrap());
    for ((name, parameter), gradient) in memopt::parameters::parameters(layer).iter().zip(&got.parameters) {
        let expected = store.get(parameter).unwrap();
        let difference = (gradient - expected).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap();
        assert!(difference.to_scalar::<f32>().unwrap() < 1e-4, "{name}");
    }
}

#[test]
fn they_run_on_all_images_at_once() {
    let vb = init::seeded(&VarMap::new(), 1, DType::F32, CPU);
    let conv2d =
        candle_nn::conv2d(3, 4, 3, Conv2dConfig { padding: 1, ..Default::default() }, vb.pp("a")).unwrap();
    check(&conv2d, &[3, 2, 3, 5, 5]);
    let conv1d = candle_nn::conv1d(3, 4, 3, Conv1dConfig::default(), vb.pp("b")).unwrap();
    check(&conv1d, &[3, 2, 3, 5]);
    check(&candle_nn::linear(3, 4, vb.pp("c")).unwrap(), &[3, 2, 3]);
    check(&Activation::Relu, &[3, 2, 3, 5]);
    assert!(Checkpointable::is_time_chunkable(&Activation::Relu) && !conv2d.is_time_chunkable());
}

#[test]
fn indices_become_vectors() {
    let vb = init::seeded(&VarMap::new(), 1, DType::F32, CPU);
    let embedding = candle_nn::embedding(5, 4, vb).unwrap();
    let indices = Tensor::new(&[[0u32, 4, 2], [1, 1, 3]], CPU).unwrap();
    let y = forward(&embedding, &indices, &mut training()).unwrap();
    assert_eq!(y.dims(), [2, 3, 4]);
    let store = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(store.get(embedding.embeddings()).unwrap().to_vec2::<f32>().unwrap()[1], [2.; 4]);
}

#[test]
fn inputs_that_do_not_fit() {
    let vb = init::seeded(&VarMap::new(), 1, DType::F32, CPU);
    let linear = candle_nn::linear(3, 4, vb).unwrap();
    let x = Tensor::zeros((2, 3), DType::F32, CPU).unwrap();
    let error = forward(&linear, &x, &mut training()).unwrap_err();
    assert!(matches!(error, memopt::Error::LayerInput { .. }), "{error}");
}
