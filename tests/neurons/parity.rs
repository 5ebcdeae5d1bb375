//! The same numbers as SpikingJelly.
//!
//! The fixtures are its outputs and gradients for `L = sum(s gs) + sum(v gv)`: every combination of surrogate, reset,
//! `detach_reset` and `decay_input`, with threshold, tau, inputs and the presence of an initial state drawn at random.

use super::*;
use candle_core::DType;
use memopt::nn::Psn;
use serde_json::Value;

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/neurons/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn tensor(value: &Value, shape: &[usize], dtype: DType) -> Tensor {
    Tensor::from_vec(numbers(value), shape, CPU).unwrap().to_dtype(dtype).unwrap()
}

fn surrogate(name: &str, alpha: Option<f64>) -> Surrogate {
    match (name, alpha) {
        ("atan", None) => Surrogate::atan(),
        ("sigmoid", None) => Surrogate::sigmoid(),
        ("piecewise_quadratic", None) => Surrogate::piecewise_quadratic(),
        ("rectangular", None) => Surrogate::rectangular(),
        ("fast_sigmoid", None) => Surrogate::fast_sigmoid(),
        ("atan", Some(alpha)) => Surrogate::ATan(alpha),
        ("sigmoid", Some(alpha)) => Surrogate::Sigmoid(alpha),
        ("piecewise_quadratic", Some(alpha)) => Surrogate::PiecewiseQuadratic(alpha),
        ("rectangular", Some(alpha)) => Surrogate::Rectangular(alpha),
        ("fast_sigmoid", Some(alpha)) => Surrogate::FastSigmoid(alpha),
        other => panic!("{other:?}"),
    }
}

/// Fails unless `ours` is `expected` up to a part `tolerance` of the largest of them, or of 1.
#[track_caller]
fn assert_close(ours: &Tensor, expected: &[f64], tolerance: f64, what: &str) {
    let ours = ours.flatten_all().unwrap().to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (ours, expected) in ours.iter().zip(expected) {
        let scale = expected.abs().max(0.1);
        assert!((ours - expected).abs() <= tolerance * scale, "{what}: {ours}, expected {expected}");
    }
}

#[test]
fn spikes_potentials_and_gradients_are_spikingjellys() {
    for (name, dtype, tolerance) in [("f64", DType::F64, 1e-12), ("f32", DType::F32, 1e-5)] {
        let fixture = fixture(name);
        let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
        let (steps, neurons) = (size("steps"), size("neurons"));
        let mut fired = 0.;
        for kind in ["lif", "if", "plif"] {
            for case in fixture[kind].as_array().unwrap() {
                let what = |of: &str| format!("{of} of {kind} in {name}, {}", case["surrogate"]);
                let flag = |key: &str| case[key].as_bool().unwrap_or(true);
                let options = Options {
                    v_threshold: case["v_threshold"].as_f64().unwrap(),
                    reset: case["v_reset"].as_f64().map_or(Reset::Soft, Reset::Hard),
                    detach_reset: flag("detach_reset"),
                    decay_input: flag("decay_input"),
                    surrogate: surrogate(case["surrogate"].as_str().unwrap(), None),
                    tau: case["tau"].as_f64().unwrap_or(2.),
                };
                let input = &fixture["inputs"][case["seed"].as_u64().unwrap() as usize];
                let x = variable(tensor(&input["x"], &[steps, neurons], dtype));
                let v0 = variable(tensor(&input["v0"], &[neurons], dtype));
                let v0 = flag("with_state").then_some(v0);
                let gs = tensor(&input["gs"], &[steps, neurons], dtype);
                let gv = tensor(&input["gv"], &[neurons], dtype);
                let w = Tensor::new(Plif::w_of(options.tau).unwrap(), CPU).unwrap();
                let w = variable(w.to_dtype(dtype).unwrap());

                let neuron = Neuron::new(kind, options, Some(&w));
                let (s, v) = neuron.window(&x, v0.as_ref().map(Var::as_tensor)).unwrap();
                assert_eq!(s.dtype(), dtype);
                assert_close(&s, &numbers(&case["s"]), 0., &what("spikes"));
                assert_close(&v, &numbers(&case["v"]), tolerance, &what("v"));
                fired += s.to_dtype(DType::F64).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap();
                let gradients = back(s, v, &gs, &gv);
                assert_close(gradients.get(&x).unwrap(), &numbers(&case["dx"]), tolerance, &what("dx"));
                if let Some(v0) = &v0 {
                    let dv = gradients.get(v0).unwrap();
                    assert_close(dv, &numbers(&case["dv"]), tolerance, &what("dv"));
                }
                if kind == "plif" {
                    let dw = case["dw"].as_f64().unwrap();
                    assert_close(gradients.get(&w).unwrap(), &[dw], tolerance, &what("dw"));
                }
            }
        }
        assert!(fired > 500., "the fixtures hardly fire");
    }
}

#[test]
fn parallel_neurons_are_spikingjellys() {
    for (name, dtype, tolerance) in [("f64", DType::F64, 1e-12), ("f32", DType::F32, 1e-5)] {
        let fixture = fixture(name);
        let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
        let (steps, neurons) = (size("steps"), size("neurons"));
        for case in fixture["psn"].as_array().unwrap() {
            let input = &fixture["inputs"][case["seed"].as_u64().unwrap() as usize];
            let x = variable(tensor(&input["x"], &[steps, neurons], dtype));
            let weight = variable(tensor(&case["weight"], &[steps, steps], dtype));
            let bias = variable(tensor(&case["bias"], &[steps, 1], dtype));
            let name = case["surrogate"].as_str().unwrap();
            let psn = Psn::new(weight.as_tensor().clone(), bias.as_tensor().clone()).unwrap();
            let s = psn.surrogate(surrogate(name, None)).window(&x).unwrap();
            assert_close(&s, &numbers(&case["s"]), 0., name);
            let gs = tensor(&input["gs"], &[steps, neurons], dtype);
            let gradients = backward_from(vec![(s, gs.into())]).unwrap();
            for (variable, key) in [(&x, "dx"), (&weight, "dweight"), (&bias, "dbias")] {
                assert_close(gradients.get(variable).unwrap(), &numbers(&case[key]), tolerance, key);
            }
        }
    }
}

#[test]
fn surrogates_are_spikingjellys() {
    for case in fixture("surrogates").as_array().unwrap() {
        let surrogate = surrogate(case["surrogate"].as_str().unwrap(), case["alpha"].as_f64());
        let points = numbers(&case["x"]).into_iter().zip(numbers(&case["step"]));
        for ((x, step), expected) in points.zip(numbers(&case["gradient"])) {
            let ours = surrogate.derivative(x);
            assert!((ours - expected).abs() <= 1e-12 * expected.abs().max(0.1), "{surrogate:?} at {x}");
            // The neuron's own step, with a threshold of 0.
            let x = Var::new(&[[x]], CPU).unwrap();
            let neuron = If::new().v_threshold(0.).surrogate(surrogate);
            let (s, _) = neuron.window(&x, None).unwrap();
            assert_eq!(s.to_vec2::<f64>().unwrap()[0][0], step);
            let dx = s.backward().unwrap().get(&x).unwrap().to_vec2::<f64>().unwrap()[0][0];
            assert_eq!(dx, ours);
        }
    }
}
