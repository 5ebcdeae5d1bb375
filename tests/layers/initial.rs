//! Initial weights.

use super::common::{assert_same, bits};
use super::support::CPU;
use candle_core::{DType, Tensor};
use candle_nn::init::FanInOut;
use candle_nn::{Init, VarMap};
use memopt::nn::init::{self, kaiming_normal, kaiming_uniform};

fn moments(tensor: &Tensor) -> (f64, f64) {
    let values = tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
}

#[test]
fn the_order_of_creation_does_not_matter_and_seed_and_name_do() {
    let init = kaiming_normal(FanInOut::FanIn);
    let get = |seed: u64, names: &[&str], wanted: &str| {
        let vb = init::seeded(&VarMap::new(), seed, DType::F32, CPU);
        let made: Vec<_> =
            names.iter().map(|name| vb.pp(name).get_with_hints((8, 4), "weight", init).unwrap()).collect();
        made[names.iter().position(|name| *name == wanted).unwrap()].clone()
    };
    let a = get(1, &["a", "b", "c"], "b");
    assert_same(&a, &get(1, &["b"], "b"));
    assert_same(&a, &get(1, &["c", "b", "a"], "b"));
    assert_ne!(bits(&a), bits(&get(2, &["b"], "b")));
    assert_ne!(bits(&a), bits(&get(1, &["a"], "a")));
}

#[test]
fn distributions_have_their_moments() {
    let vb = init::seeded(&VarMap::new(), 3, DType::F64, CPU);
    let shape = (64, 32, 3, 3);
    let (fan_in, fan_out) = (32. * 9., 64. * 9.);
    let he = |fan: f64| (2. / fan).sqrt();
    for (name, init, mean, deviation) in [
        ("a", kaiming_normal(FanInOut::FanIn), 0., he(fan_in)),
        ("b", kaiming_normal(FanInOut::FanOut), 0., he(fan_out)),
        ("c", kaiming_uniform(FanInOut::FanIn), 0., he(fan_in)),
        ("d", kaiming_uniform(FanInOut::FanOut), 0., he(fan_out)),
        ("e", Init::Uniform { lo: 1., up: 3. }, 2., 2. / 12f64.sqrt()),
        ("f", Init::Randn { mean: -1., stdev: 0.5 }, -1., 0.5),
        ("g", Init::Const(0.25), 0.25, 0.),
    ] {
        let tensor = vb.get_with_hints(shape, name, init).unwrap();
        let (got_mean, got_deviation) = moments(&tensor);
        assert!((got_mean - mean).abs() < 4. * deviation / 135. + 1e-12, "{name}: mean {got_mean}");
        assert!((got_deviation - deviation).abs() < 0.02 * deviation + 1e-12, "{name}: {got_deviation}");
    }
    let uniform = init::values(Init::Uniform { lo: 1., up: 3. }, &10_000.into(), 5, "w");
    assert!(uniform.iter().all(|value| (1. ..3.).contains(value)));
}

#[test]
fn normal_values_are_normal() {
    let values = init::values(Init::Randn { mean: 0., stdev: 1. }, &100_000.into(), 5, "w");
    for (bound, share) in [(1., 0.3173), (2., 0.0455), (3., 0.0027)] {
        let beyond = values.iter().filter(|v| v.abs() > bound).count() as f64 / values.len() as f64;
        assert!((beyond - share).abs() < 0.005, "{beyond} beyond {bound}");
    }
    let lag: f64 = values.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / values.len() as f64;
    assert!(lag.abs() < 0.013, "neighbours correlate: {lag}");
    let other = init::values(Init::Randn { mean: 0., stdev: 1. }, &100_000.into(), 6, "w");
    let cross: f64 = values.iter().zip(&other).map(|(a, b)| a * b).sum::<f64>() / values.len() as f64;
    assert!(cross.abs() < 0.013, "seeds correlate: {cross}");
}

#[test]
fn variables_are_kept_in_the_map_and_taken_from_it() {
    let variables = VarMap::new();
    let vb = init::seeded(&variables, 1, DType::F32, CPU);
    let a = vb.get_with_hints((2, 3), "w", Init::Randn { mean: 0., stdev: 1. }).unwrap();
    assert!(a.is_variable());
    let b =
        init::seeded(&variables, 2, DType::F32, CPU).get_with_hints((2, 3), "w", Init::Const(0.)).unwrap();
    assert_eq!(a.id(), b.id());
    assert!(vb.contains_tensor("w") && !vb.contains_tensor("v"));
    assert_eq!(vb.get_unchecked("w").unwrap().id(), a.id());
    assert!(vb.get_with_hints((3, 2), "w", Init::Const(0.)).is_err());
    assert!(vb.get_unchecked("v").is_err());
}

#[test]
fn dtypes_round_the_same_values() {
    let get = |dtype| {
        init::seeded(&VarMap::new(), 1, dtype, CPU).get_with_hints(
            50,
            "w",
            Init::Randn { mean: 0., stdev: 1. },
        )
    };
    assert_same(&get(DType::F64).unwrap().detach().to_dtype(DType::F32).unwrap(), &get(DType::F32).unwrap());
}
