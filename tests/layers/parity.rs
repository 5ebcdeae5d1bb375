//! The same numbers as PyTorch.

use super::fixtures::{each, Case};
use super::support::{evaluation, run, training, Run};
use candle_core::Tensor;
use memopt::module::Checkpointable;
use memopt::nn::{
    AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, BatchNorm, BatchNormConfig, Conv, ConvConfig, LayerNorm,
    LayerNormConfig, Linear, MaxPool2d,
};
use std::collections::HashMap;

fn run_case(case: &Case<'_>, layer: &impl Checkpointable) {
    check(case, run(layer, &case.tensor("x"), |_| case.tensor("dy"), &mut training()));
}

#[track_caller]
fn check(case: &Case<'_>, run: Run) {
    case.check("y", &run.y);
    case.check("dx", &run.dx);
    let names = ["dweight", "dbias"].into_iter().filter(|name| case.has(name));
    assert_eq!(names.clone().count(), run.parameters.len());
    names.zip(&run.parameters).for_each(|(name, gradient)| case.check(name, gradient));
}

fn bias(case: &Case<'_>) -> Option<Tensor> {
    case.has("bias").then(|| case.variable("bias"))
}

fn conv<const D: usize>(case: &Case<'_>) -> Conv<D> {
    let sizes = |name| <[usize; D]>::try_from(case.sizes(name)).unwrap();
    let config = ConvConfig::default()
        .stride(sizes("stride"))
        .padding(sizes("padding"))
        .dilation(sizes("dilation"))
        .groups(case.size("groups"));
    Conv::from_tensors(case.variable("weight"), bias(case), config)
}

#[test]
fn convolutions() {
    each("conv", |case| match case.sizes("stride").len() {
        1 => run_case(&case, &conv::<1>(&case)),
        _ => run_case(&case, &conv::<2>(&case)),
    });
}

#[test]
fn linear() {
    each("linear", |case| run_case(&case, &Linear::from_tensors(case.variable("weight"), bias(&case))));
}

/// A builder with the case's variables.
fn builder(case: &Case<'_>, names: &[&str]) -> candle_nn::VarBuilder<'static> {
    let present = names.iter().filter(|name| case.has(name));
    let tensors: HashMap<_, _> = present.map(|name| (name.to_string(), case.variable(name))).collect();
    candle_nn::VarBuilder::from_tensors(tensors, case.1, &candle_core::Device::Cpu)
}

#[test]
fn batch_norm_in_training_and_evaluation() {
    each("batch_norm", |case| {
        let config = BatchNormConfig::default()
            .eps(case.number("eps"))
            .momentum(case.number("momentum"))
            .affine(case.has("weight"));
        let vb = builder(&case, &["weight", "bias", "running_mean", "running_var"]);
        let norm = BatchNorm::new(case.tensor("x").dims()[2], config, vb).unwrap();
        let mut context = if case.0["train"].as_bool().unwrap() { training() } else { evaluation() };
        check(&case, run(&norm, &case.tensor("x"), |_| case.tensor("dy"), &mut context));
        case.check("new_mean", &norm.running_mean().unwrap());
        case.check("new_var", &norm.running_var().unwrap());
    });
}

#[test]
fn layer_norm() {
    each("layer_norm", |case| {
        let config = LayerNormConfig::default().eps(case.number("eps")).affine(case.has("weight"));
        let vb = builder(&case, &["weight", "bias"]);
        run_case(&case, &LayerNorm::new(&case.sizes("normalized"), config, vb).unwrap());
    });
}

#[test]
fn pools() {
    each("pool", |case| match case.0["kind"].as_str().unwrap() {
        "avg" => run_case(&case, &AvgPool2d::new(case.pair("kernel")).stride(case.pair("stride"))),
        "max" => {
            let pool = MaxPool2d::new(case.pair("kernel"));
            run_case(&case, &pool.stride(case.pair("stride")).padding(case.pair("padding")))
        }
        "adaptive_avg" => run_case(&case, &AdaptiveAvgPool2d::new(case.pair("to"))),
        "adaptive_max" => run_case(&case, &AdaptiveMaxPool2d::new(case.pair("to"))),
        other => panic!("no pool {other}"),
    });
}
