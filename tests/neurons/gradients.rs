//! Gradients against differences, and who gets one.

use super::common::Values;
use super::*;
use candle_core::DType;
use memopt::parameters::{parameters, Parameters};

/// Below the threshold the potential is a smooth function of everything, and a window of 1 in `Rectangular` sees nothing of
/// the step.
#[test]
fn gradients_of_the_potential_are_its_differences() {
    let mut values = Values::new(11);
    for (kind, decay_input, reset) in [
        ("if", true, Reset::Soft),
        ("lif", true, Reset::Hard(-0.4)),
        ("lif", false, Reset::Hard(0.7)),
        ("plif", true, Reset::Hard(-0.4)),
        ("plif", false, Reset::Hard(0.7)),
        ("plif", false, Reset::Soft),
    ] {
        let o = Options {
            v_threshold: 1e4,
            reset,
            detach_reset: false,
            decay_input,
            surrogate: Surrogate::rectangular(),
            tau: 1.7,
        };
        let inputs = [
            values.tensor(&[4, 3], DType::F64).unwrap(),
            values.tensor(&[3], DType::F64).unwrap(),
            Tensor::new(Plif::w_of(1.7).unwrap(), CPU).unwrap(),
        ];
        let gv = values.tensor(&[3], DType::F64).unwrap();
        let run = |inputs: &[Tensor]| {
            let vars: Vec<Var> = inputs.iter().map(|t| Var::from_tensor(t).unwrap()).collect();
            let neuron = Neuron::new(kind, o, Some(&vars[2]));
            let (_, v) = neuron.window(&vars[0], Some(&vars[1])).unwrap();
            let loss = (&v * &gv).unwrap().sum_all().unwrap();
            (loss.to_scalar::<f64>().unwrap(), loss.backward().unwrap(), vars)
        };
        let (_, gradients, vars) = run(&inputs);
        for which in 0..if kind == "plif" { 3 } else { 2 } {
            let ours = gradients.get(&vars[which]).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
            for (i, ours) in ours.iter().enumerate() {
                let moved = |by: f64| {
                    let mut inputs = inputs.clone();
                    let mut v = inputs[which].flatten_all().unwrap().to_vec1::<f64>().unwrap();
                    v[i] += by;
                    inputs[which] = Tensor::from_vec(v, inputs[which].shape(), CPU).unwrap();
                    run(&inputs).0
                };
                let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((ours - difference).abs() < 1e-8, "{kind} {which}: {ours} {difference}");
            }
        }
    }
}

#[test]
fn outputs_that_the_loss_does_not_see_and_inputs_without_gradient() {
    let x = variable(Values::new(2).tensor(&[3, 4], DType::F64).unwrap());
    let w = Var::new(0f64, CPU).unwrap();
    let plif = Plif::new(w.as_tensor().clone()).unwrap();
    let (s, _) = plif.window(&x, None).unwrap();
    assert!(s.sum_all().unwrap().backward().unwrap().get(&x).is_some());
    let (_, v) = plif.window(&x.as_detached_tensor(), None).unwrap();
    let gradients = v.sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&x).is_none() && gradients.get(&w).is_some());
    let (s, v) = plif.detached().window(&x.as_detached_tensor(), None).unwrap();
    assert!(!s.track_op() && !v.track_op());
    assert_eq!(parameters(&plif).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["w"]);
}
