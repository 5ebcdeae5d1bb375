//! bf16 and f16 parameters are moved in f32.

use super::nets::CPU;
use candle_core::{DType, Tensor, Var};
use memopt::train::{AdamW, AdamWConfig, Gradients, NamedParameters, Optimizer, Sgd, SgdConfig};

fn half(dtype: DType) -> (Var, NamedParameters) {
    let w = Var::from_tensor(&Tensor::ones(5, dtype, CPU).unwrap()).unwrap();
    let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())]).unwrap();
    (w, parameters)
}

fn step(optimizer: &mut dyn Optimizer, w: &Var, parameters: &NamedParameters) {
    let store = w.sum_all().unwrap().backward().unwrap();
    optimizer.step(&Gradients::new(parameters, store).unwrap()).unwrap();
}

fn values(w: &Tensor) -> Vec<f32> {
    w.to_dtype(DType::F32).unwrap().to_vec1().unwrap()
}

/// Steps that are each too small to change the parameter.
#[test]
fn small_steps_add_up() {
    for dtype in [DType::BF16, DType::F16] {
        let (w, parameters) = half(dtype);
        let mut sgd = Sgd::new(&parameters, SgdConfig::new(1. / 8192.)).unwrap();
        step(&mut sgd, &w, &parameters);
        assert_eq!(values(&w), [1.; 5]);
        (1..1024).for_each(|_| step(&mut sgd, &w, &parameters));
        assert_eq!(values(&w), [0.875; 5], "{dtype:?}");
    }
}

#[test]
fn a_parameter_that_is_set_from_outside_takes_its_copy_with_it() {
    for dtype in [DType::BF16, DType::F16] {
        let (w, parameters) = half(dtype);
        let mut sgd = Sgd::new(&parameters, SgdConfig::new(0.25)).unwrap();
        step(&mut sgd, &w, &parameters);
        assert_eq!(values(&w), [0.75; 5]);
        w.set(&Tensor::new(&[8f32, 0.75, 8., 0., -1.], CPU).unwrap().to_dtype(dtype).unwrap()).unwrap();
        step(&mut sgd, &w, &parameters);
        assert_eq!(values(&w), [7.75, 0.5, 7.75, -0.25, -1.25]);
    }
}

#[test]
fn the_copies_are_saved() {
    let (w, parameters) = half(DType::BF16);
    let make =
        || AdamW::new(&parameters, AdamWConfig { weight_decay: 0., ..AdamWConfig::new(1. / 8192.) }).unwrap();
    let mut straight = make();
    (0..1000).for_each(|_| step(&mut straight, &w, &parameters));
    let expected = values(&w);
    assert!(expected[0] < 0.9);
    w.set(&Tensor::ones(5, DType::BF16, CPU).unwrap()).unwrap();
    let mut resumed = make();
    for _ in 0..10 {
        (0..100).for_each(|_| step(&mut resumed, &w, &parameters));
        let state = resumed.state().unwrap();
        assert!(state.iter().any(|(name, copy)| name == "master.w" && copy.dtype() == DType::F32));
        resumed = make();
        resumed.load_state(&state).unwrap();
    }
    assert_eq!(values(&w), expected);
}
