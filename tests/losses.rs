//! Losses over the window: values and gradients by numbers of PyTorch, and what does not fit.
#![allow(clippy::unwrap_used, clippy::panic)]

use candle_core::{DType, Device, Tensor, Var};
use memopt::nn::{cross_entropy_of_mean, mse_of_rates, tet};
use memopt::{Error, Result};
use serde_json::Value;

const CPU: &Device = &Device::Cpu;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Name, values, labels, and what is expected.
fn fixture() -> (Value, Var, Tensor) {
    let path = format!("{}/tests/fixtures/neurons/losses.json", env!("CARGO_MANIFEST_DIR"));
    let fixture: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let shape: Vec<usize> = numbers(&fixture["shape"]).iter().map(|&d| d as usize).collect();
    let x = Tensor::from_vec(numbers(&fixture["x"]), shape, CPU).unwrap();
    let labels: Vec<u32> = numbers(&fixture["labels"]).iter().map(|&l| l as u32).collect();
    let labels = Tensor::new(labels, CPU).unwrap();
    (fixture, Var::from_tensor(&x).unwrap(), labels)
}

fn loss(name: &str, x: &Tensor, labels: &Tensor) -> Result<Tensor> {
    match name {
        "cross_entropy_of_mean" => cross_entropy_of_mean(x, labels),
        "tet" => tet(x, labels, 1., 0.05),
        _ => mse_of_rates(x, labels),
    }
}

const NAMES: [&str; 3] = ["cross_entropy_of_mean", "tet", "mse_of_rates"];

#[test]
fn values_and_gradients_are_pytorchs() {
    let (fixture, x, labels) = fixture();
    assert_eq!((fixture["lambda"].as_f64(), fixture["means"].as_f64()), (Some(0.05), Some(1.)));
    for name in NAMES {
        let value = loss(name, &x, &labels).unwrap();
        let expected = &fixture[name];
        assert!((value.to_scalar::<f64>().unwrap() - expected["loss"].as_f64().unwrap()).abs() < 1e-13);
        let gradient = value.backward().unwrap().get(&x).unwrap().flatten_all().unwrap();
        for (ours, expected) in gradient.to_vec1::<f64>().unwrap().iter().zip(numbers(&expected["gradient"]))
        {
            assert!((ours - expected).abs() < 1e-14, "{name}: {ours}, expected {expected}");
        }
    }
}

#[test]
fn every_float_dtype() {
    let (_, x, labels) = fixture();
    for name in NAMES {
        let exact = loss(name, &x, &labels).unwrap().to_scalar::<f64>().unwrap();
        for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::BF16, 1e-2), (DType::F16, 1e-3)] {
            let x = Var::from_tensor(&x.to_dtype(dtype).unwrap()).unwrap();
            let value = loss(name, &x, &labels).unwrap();
            assert_eq!((value.rank(), value.dtype()), (0, DType::F32));
            assert!((f64::from(value.to_scalar::<f32>().unwrap()) - exact).abs() < tolerance, "{name}");
            assert_eq!(value.backward().unwrap().get(&x).unwrap().dtype(), dtype);
        }
    }
}

#[test]
fn tet_between_its_two_parts() {
    let (_, x, labels) = fixture();
    let value = |mean, lambda| tet(&x, &labels, mean, lambda).unwrap().to_scalar::<f64>().unwrap();
    let pull = x.affine(1., -0.3).unwrap().sqr().unwrap().mean_all().unwrap().to_scalar::<f64>().unwrap();
    assert!((value(0.3, 1.) - pull).abs() < 1e-14);
    let mean: f64 = (0..3)
        .map(|t| {
            let step = x.narrow(0, t, 1).unwrap();
            cross_entropy_of_mean(&step, &labels).unwrap().to_scalar::<f64>().unwrap() / 3.
        })
        .sum();
    assert!((value(0.3, 0.) - mean).abs() < 1e-14);
    assert!((value(0.3, 0.25) - (0.75 * mean + 0.25 * pull)).abs() < 1e-14);
}

#[test]
fn what_does_not_fit_is_a_typed_error_that_names_the_loss() {
    let (_, x, labels) = fixture();
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, CPU).unwrap();
    for name in NAMES {
        let fails = |x: &Tensor, labels: &Tensor, says: &str| match loss(name, x, labels) {
            Err(Error::LayerInput { part, what }) => {
                assert_eq!(part, name);
                assert!(what.contains(says), "{what}");
            }
            other => panic!("{other:?}"),
        };
        fails(&x.mean(0).unwrap(), &labels, "[T, N, classes]");
        fails(&zeros(&[0, 4, 5], DType::F32), &labels, "no elements");
        fails(&zeros(&[2, 0, 5], DType::F32), &zeros(&[0], DType::U32), "no elements");
        fails(&zeros(&[2, 4, 5], DType::U8), &labels, "u8 given");
        fails(&x, &zeros(&[3], DType::U32), "N = 4");
        fails(&x, &zeros(&[4], DType::F32), "F32");
        fails(&x, &Tensor::new(&[0u32, 5, 1, 1], CPU).unwrap(), "label 1 is 5");
        fails(&x, &Tensor::new(&[0i64, 1, -1, 1], CPU).unwrap(), "label 2 is -1");
    }
    assert!(tet(&x, &labels, 1., 1.5).is_err() && tet(&x, &labels, f64::NAN, 0.5).is_err());
}
