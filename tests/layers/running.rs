//! Running statistics.

use super::common::{assert_same, Values};
use super::support::{evaluation, forward, training, CPU};
use candle_core::{DType, Tensor};
use candle_nn::VarMap;
use memopt::nn::{init, BatchNorm, BatchNormConfig};
use memopt::parameters::parameters;
use memopt::Parameters;

fn norm(variables: &VarMap, dtype: DType) -> BatchNorm {
    let vb = init::seeded(variables, 1, dtype, CPU).pp("norm");
    BatchNorm::new(3, BatchNormConfig::default(), vb).unwrap()
}

#[test]
fn they_move_in_training_without_a_backward_and_not_in_evaluation() {
    let norm = norm(&VarMap::new(), DType::F32);
    let x = Values::new(1).tensor(&[4, 2, 3], DType::F32).unwrap();
    let before = norm.running_mean().unwrap();
    forward(&norm, &x, &mut evaluation()).unwrap();
    assert_same(&before, &norm.running_mean().unwrap());
    drop(forward(&norm, &x, &mut training()).unwrap());
    let once = norm.running_mean().unwrap().to_vec1::<f32>().unwrap();
    let mean = x.mean((0, 1)).unwrap().to_vec1::<f32>().unwrap();
    for (once, mean) in once.iter().zip(&mean) {
        assert!((once - 0.1 * mean).abs() < 1e-6);
    }
}

#[test]
fn the_twin_shares_them_and_they_are_not_parameters() {
    let norm = norm(&VarMap::new(), DType::F32);
    let x = Values::new(1).tensor(&[4, 2, 3], DType::F32).unwrap();
    forward(&norm.detached(), &x, &mut training()).unwrap();
    assert_ne!(norm.running_mean().unwrap().to_vec1::<f32>().unwrap(), [0.; 3]);
    let names: Vec<String> = parameters(&norm).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight", "bias"]);
}

#[test]
fn they_are_saved_with_the_variables_and_can_be_set() {
    let (variables, other) = (VarMap::new(), VarMap::new());
    let (norm, copy) = (norm(&variables, DType::F32), norm(&other, DType::F32));
    let x = Values::new(1).tensor(&[4, 2, 3], DType::F32).unwrap();
    forward(&norm, &x, &mut training()).unwrap();
    let saved = variables.data().lock().unwrap()["norm.running_var"].as_detached_tensor().copy().unwrap();
    assert_same(&saved, &norm.running_var().unwrap());
    let snapshot = norm.running_mean().unwrap();
    copy.set_running(&norm.running_mean().unwrap(), &norm.running_var().unwrap()).unwrap();
    let y = |norm: &BatchNorm| forward(norm, &x, &mut evaluation()).unwrap().detach();
    assert_same(&y(&norm), &y(&copy));
    // the getters give copies
    forward(&norm, &x, &mut training()).unwrap();
    assert_same(&snapshot, &copy.running_mean().unwrap());
    assert!(copy.set_running(&Tensor::zeros(4, DType::F32, CPU).unwrap(), &snapshot).is_err());
}

#[test]
fn they_are_f32_in_half_precision() {
    let norm = norm(&VarMap::new(), DType::BF16);
    let x = Values::new(1).tensor(&[4, 2, 3], DType::BF16).unwrap();
    forward(&norm, &x, &mut training()).unwrap();
    assert_eq!(norm.running_mean().unwrap().dtype(), DType::F32);
}
