//! What is saved and loaded goes on with the same bits.

use super::nets::*;
use candle_core::{DType, Tensor, Var};
use memopt::train::{Accumulator, AccumulatorConfig, AdamW, AdamWConfig, Clip, NamedParameters, Optimizer};
use memopt::train::{ScalerConfig, Schedule, Sgd, SgdConfig};
use memopt::Error;
use std::collections::HashMap;

type State = Vec<(String, Tensor)>;

fn optimizer(kind: &str, parameters: &NamedParameters) -> Box<dyn Optimizer> {
    match kind {
        "adamw" => Box::new(AdamW::new(parameters, AdamWConfig::new(0.01)).unwrap()),
        "momentum" => {
            let config = SgdConfig { momentum: 0.9, nesterov: true, ..SgdConfig::new(0.05) };
            Box::new(Sgd::new(parameters, config).unwrap())
        }
        _ => Box::new(Sgd::new(parameters, SgdConfig::new(0.05)).unwrap()),
    }
}

fn accumulator(kind: &str, parameters: &NamedParameters) -> Accumulator<Box<dyn Optimizer>> {
    let config = AccumulatorConfig {
        steps: 2,
        clip: Clip::GlobalNorm(1.),
        scaling: Some(ScalerConfig { interval: 2, ..Default::default() }),
        schedule: Some(Schedule::cosine(0.02, 0., 9).unwrap().after_warm_up(2, 0.1).unwrap()),
        ..Default::default()
    };
    Accumulator::new(optimizer(kind, parameters), config).unwrap()
}

/// Through a file, as a checkpoint goes.
fn through_a_file(state: State, name: &str) -> State {
    let path = std::env::temp_dir().join(format!("memopt-{}-{name}.safetensors", std::process::id()));
    candle_core::safetensors::save(&state.into_iter().collect::<HashMap<_, _>>(), &path).unwrap();
    let loaded = candle_core::safetensors::load(&path, CPU).unwrap();
    std::fs::remove_file(path).unwrap();
    loaded.into_iter().collect()
}

fn copy_weights(from: &NamedParameters, to: &NamedParameters) {
    for (from, to) in from.iter().zip(to.iter()) {
        Var::from_tensor(to.tensor()).unwrap().set(&from.tensor().detach()).unwrap();
    }
}

#[test]
fn a_training_that_is_resumed_has_the_same_bits() {
    let data = Data::new(24, 9);
    // Eight micro-batches, four steps; resumed behind a step, and within a window.
    for (kind, at) in
        [("adamw", 4), ("adamw", 3), ("momentum", 2), ("momentum", 5), ("plain", 4), ("plain", 0)]
    {
        let mut reports = vec![];
        let run = |from: usize, to: usize, net: &_, accumulator: &mut Accumulator<Box<dyn Optimizer>>| {
            let all = (from..to).map(|i| accumulator.backward(&data.loss(net, 3 * i, 3), 3).unwrap());
            all.collect::<Vec<_>>()
        };
        let whole = net(false, "");
        let mut straight = accumulator(kind, &parameters(&whole));
        let expected = run(0, 8, &whole, &mut straight);

        let first = net(false, "");
        let mut before = accumulator(kind, &parameters(&first));
        reports.extend(run(0, at, &first, &mut before));
        let second = net(false, "");
        copy_weights(&parameters(&first), &parameters(&second));
        let state = before.state_with_window().unwrap();
        let mut after = accumulator(kind, &parameters(&second));
        after.load_state(&through_a_file(state, &format!("{kind}{at}"))).unwrap();
        assert_eq!((after.totals(), after.pending()), (before.totals(), before.pending()));
        // It has gone into the other one.
        before.finish().unwrap();
        reports.extend(run(at, 8, &second, &mut after));
        assert_eq!(reports, expected, "{kind} {at}");
        assert_eq!(weights(&parameters(&second)), weights(&parameters(&whole)), "{kind} {at}");
    }
}

/// Trap: saved in the middle of a window, the gradients would be lost.
#[test]
fn within_a_window_a_state_is_refused() {
    let (w, parameters) = variable(&[1.]);
    let mut accumulator = accumulator("adamw", &parameters);
    assert!(accumulator.state().is_ok());
    accumulator.backward(&linear(&w, 1.), 1).unwrap();
    let error = accumulator.state().unwrap_err();
    assert!(matches!(error, Error::MidAccumulation { micro_batches: 1 }));
    assert!(error.to_string().contains("`finish`"), "{error}");
    accumulator.finish().unwrap();
    assert!(accumulator.state().is_ok());
}

#[test]
fn a_state_is_a_copy() {
    let (w, parameters) = variable(&[1.]);
    let mut accumulator = accumulator("momentum", &parameters);
    let mut step = || {
        accumulator.backward(&linear(&w, 1.), 1).unwrap();
        accumulator.finish().unwrap();
        accumulator.state().unwrap()
    };
    let state = step();
    let read = |state: &State| -> f64 {
        let velocity = state.iter().find(|(name, _)| name == "optimizer.momentum.w").unwrap();
        velocity.1.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap()[0]
    };
    let before = read(&state);
    assert_ne!(read(&step()), before);
    assert_eq!(read(&state), before);
}

#[test]
fn a_state_that_does_not_fit_is_refused_by_name_and_nothing_changes() {
    let (w, parameters) = variable(&[1., 2.]);
    let mut trained = accumulator("adamw", &parameters);
    trained.backward(&linear(&w, 1.), 1).unwrap();
    trained.finish().unwrap();
    let good = trained.state().unwrap();
    let without = |name: &str| good.iter().filter(|(own, _)| own != name).cloned().collect::<State>();
    let with = |name: &str, tensor: Tensor| [without(name), vec![(name.to_owned(), tensor)]].concat();
    let zeros = |n: usize, dtype| Tensor::zeros(n, dtype, CPU).unwrap();

    let mut other = accumulator("adamw", &parameters);
    for name in [
        "optimizer.first_moment.w",
        "optimizer.steps.w",
        "optimizer.learning_rate",
        "scaler.scale",
        "totals.steps",
    ] {
        let error = other.load_state(&without(name)).unwrap_err();
        assert!(
            matches!(&error, Error::StateMissing { name: missing, .. } if name.ends_with(missing)),
            "{error}"
        );
    }
    for name in
        ["optimizer.first_moment.v", "optimizer.momentum.w", "scaler.more", "else", "window.gradient.w"]
    {
        let error = other.load_state(&with(name, zeros(2, DType::F32))).unwrap_err();
        assert!(
            matches!(&error, Error::StateForeign { name: foreign, .. } if name.ends_with(foreign)),
            "{error}"
        );
    }
    for (name, tensor) in [
        ("optimizer.first_moment.w", zeros(3, DType::F32)),
        ("optimizer.second_moment.w", zeros(2, DType::F64)),
        ("optimizer.steps.w", Tensor::new(-1i64, CPU).unwrap()),
        ("scaler.scale", Tensor::new(0f64, CPU).unwrap()),
        ("totals.samples", Tensor::new(1f32, CPU).unwrap()),
    ] {
        let error = other.load_state(&with(name, tensor)).unwrap_err();
        assert!(matches!(&error, Error::StateTensor { name: wrong, .. } if name.ends_with(wrong)), "{error}");
    }
    assert_eq!(other.totals().steps, 0);
    let names = |state: State| state.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert!(!names(other.state().unwrap()).contains(&"optimizer.first_moment.w".to_owned()));
    other.load_state(&good).unwrap();
    assert_eq!(names(other.state().unwrap()), names(good));
}
