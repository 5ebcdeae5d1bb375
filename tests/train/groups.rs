//! Parameters with options of their own.

use super::nets::*;
use candle_core::{Tensor, Var};
use memopt::train::{
    AdamW, AdamWConfig, Gradients, NamedParameters, Optimizer, ParameterGroup, Sgd, SgdConfig,
};
use memopt::Error;

/// A matrix and two vectors, each with a gradient of ones.
fn setup() -> (Vec<Var>, NamedParameters) {
    let ones = |shape: &[usize]| {
        Var::from_tensor(&Tensor::ones(shape, candle_core::DType::F32, CPU).unwrap()).unwrap()
    };
    let variables = vec![ones(&[2, 2]), ones(&[2]), ones(&[3])];
    let named = ["conv.weight", "conv.bias", "bn.weight"].map(str::to_owned);
    let named = named.into_iter().zip(variables.iter().map(|v| v.as_tensor().clone()));
    (variables.clone(), NamedParameters::new(named).unwrap())
}

fn step(optimizer: &mut dyn Optimizer, variables: &[Var], parameters: &NamedParameters) -> Vec<f32> {
    let sums = variables.iter().map(|v| v.sum_all().unwrap()).reduce(|a, b| (a + b).unwrap()).unwrap();
    optimizer.step(&Gradients::new(parameters, sums.backward().unwrap()).unwrap()).unwrap();
    variables.iter().map(|v| v.flatten_all().unwrap().to_vec1::<f32>().unwrap()[0]).collect()
}

#[test]
fn a_parameter_has_the_options_of_the_first_group_that_chooses_it() {
    let (variables, parameters) = setup();
    let groups = [
        ParameterGroup::new(|p| p.name().ends_with(".bias")).weight_decay(0.).rate_factor(2.),
        ParameterGroup::new(|p| p.dims().len() < 2).weight_decay(0.),
    ];
    let config = SgdConfig { weight_decay: 0.5, ..SgdConfig::new(0.25) };
    let mut sgd = Sgd::with_groups(&parameters, config, groups).unwrap();
    assert_eq!(step(&mut sgd, &variables, &parameters), [1. - 0.25 * 1.5, 1. - 0.5, 1. - 0.25]);
}

#[test]
fn without_weight_decay_adamw_moves_by_the_learning_rate_only() {
    let (variables, parameters) = setup();
    let vectors = ParameterGroup::new(|p| p.dims().len() < 2).weight_decay(0.);
    let config = AdamWConfig { weight_decay: 0.5, ..AdamWConfig::new(0.125) };
    let mut adamw = AdamW::with_groups(&parameters, config, [vectors]).unwrap();
    let moved = step(&mut adamw, &variables, &parameters);
    for (moved, expected) in moved.iter().zip([1. - 0.125 * 0.5 - 0.125, 0.875, 0.875]) {
        assert!((moved - expected).abs() < 1e-6, "{moved} {expected}");
    }
}

#[test]
fn a_group_that_chooses_nothing_or_makes_no_sense_is_refused() {
    let (_, parameters) = setup();
    let make = |groups: Vec<ParameterGroup>| Sgd::with_groups(&parameters, SgdConfig::new(0.1), groups);
    let none = make(vec![ParameterGroup::new(|_| true), ParameterGroup::new(|p| p.name().ends_with("bias"))]);
    let error = none.unwrap_err();
    assert!(
        matches!(&error, Error::Training { what, .. } if what.contains("the parameter group 1")),
        "{error}"
    );
    assert!(make(vec![ParameterGroup::new(|_| true).weight_decay(-1.)]).is_err());
    assert!(make(vec![ParameterGroup::new(|_| true).rate_factor(f64::NAN)]).is_err());
}
