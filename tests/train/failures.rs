//! What is refused is a typed error that says what to do, and the next step works.

use super::nets::*;
use super::windows::LOSING;
use candle_core::{DType, Tensor, Var};
use memopt::checkpoint::checkpoint;
use memopt::train::{
    lost, Accumulator, AccumulatorConfig, AdamW, AdamWConfig, Clip, Gradients, NamedParameters, Optimizer,
};
use memopt::train::{ScalerConfig, Sgd, SgdConfig};
use memopt::{Error, Result};

fn sgd(parameters: &NamedParameters) -> Sgd {
    Sgd::new(parameters, SgdConfig::new(1.)).unwrap()
}

#[test]
fn a_loss_that_cannot_be_gone_back_from_leaves_the_window_as_it_was() {
    let (w, parameters) = variable(&[1., 2.]);
    let (stranger, _) = variable(&[1.]);
    let mut accumulator =
        Accumulator::new(sgd(&parameters), AccumulatorConfig { steps: 2, ..Default::default() }).unwrap();
    accumulator.backward(&linear(&w, 1.), 2).unwrap();
    let integer = Tensor::new(1u32, CPU).unwrap();
    for (loss, count, says) in [
        (linear(&w, 1.), 0, "0 samples"),
        (w.as_tensor().clone(), 1, "a scalar of floats expected, [2] of f32"),
        (linear(&w, 1.).reshape(1).unwrap(), 1, "[1] of f32"),
        (integer, 1, "[] of u32"),
        (linear(&w, 1.).detach(), 1, "none of the optimizer's parameters"),
        (linear(&stranger, 1.), 1, "none of the optimizer's parameters"),
    ] {
        let error = accumulator.backward(&loss, count).unwrap_err();
        assert!(matches!(&error, Error::Loss { what } if what.contains(says)), "{error}");
        assert_eq!(accumulator.pending(), 1);
    }
    let step = accumulator.backward(&linear(&w, 3.), 2).unwrap().unwrap();
    assert_eq!((step.samples, w.to_vec1::<f32>().unwrap()), (4, vec![-1., 0.]));
}

/// As by an error inside of a segment.
#[test]
fn a_backward_that_fails_leaves_the_window_as_it_was() {
    let (w, parameters) = variable(&[1., 2.]);
    let mut accumulator =
        Accumulator::new(sgd(&parameters), AccumulatorConfig { steps: 2, ..Default::default() }).unwrap();
    let captured = w.clone();
    let runs = std::sync::atomic::AtomicUsize::new(0);
    let failing = move |_: &[Tensor]| match runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => captured.sum_all(),
        _ => candle_core::bail!("no"),
    };
    let x = Tensor::new(1f32, CPU).unwrap();
    let loss = checkpoint(failing, &[&x], "failing").unwrap();
    let error = accumulator.backward(&loss, 1).unwrap_err();
    assert!(error.to_string().contains("failing"), "{error}");
    assert_eq!(accumulator.pending(), 0);
    for _ in 0..2 {
        accumulator.backward(&linear(&w, 1.), 1).unwrap();
    }
    assert_eq!(w.to_vec1::<f32>().unwrap(), [0., 1.]);
}

/// An optimizer whose first step fails.
#[derive(Debug)]
struct Failing(Sgd, bool);

impl Optimizer for Failing {
    fn parameters(&self) -> &NamedParameters {
        self.0.parameters()
    }

    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        match std::mem::take(&mut self.1) {
            true => Err(Error::Training { part: "failing".into(), what: "no".into() }),
            false => self.0.step(gradients),
        }
    }

    fn learning_rate(&self) -> f64 {
        self.0.learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.0.set_learning_rate(rate);
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        self.0.state()
    }

    fn load_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        self.0.load_state(state)
    }
}

#[test]
fn a_step_that_fails_loses_its_window_counted_and_the_next_works() {
    let _alone = LOSING.lock().unwrap();
    let (w, parameters) = variable(&[1.]);
    let mut accumulator =
        Accumulator::new(Failing(sgd(&parameters), true), AccumulatorConfig::default()).unwrap();
    let before = lost();
    assert!(accumulator.backward(&linear(&w, 1.), 9).is_err());
    assert_eq!((lost().micro_batches - before.micro_batches, lost().samples - before.samples), (1, 9));
    assert_eq!((accumulator.pending(), accumulator.totals().steps), (0, 0));
    assert_eq!(accumulator.backward(&linear(&w, 1.), 9).unwrap().unwrap().number, 1);
    assert_eq!(w.to_vec1::<f32>().unwrap(), [0.]);
}

/// Trap: weights change between forward and backward; our optimizers say so.
#[test]
fn a_forward_before_a_step_cannot_be_gone_back_through_after_it() {
    let (w, parameters) = variable(&[1., 2.]);
    let adamw = AdamW::new(&parameters, AdamWConfig::new(0.1)).unwrap();
    let mut accumulator = Accumulator::new(adamw, AccumulatorConfig::default()).unwrap();
    let captured = w.clone();
    let x = Tensor::new(&[3f32, 4.], CPU).unwrap();
    let forward = || {
        let captured = captured.clone();
        let y = checkpoint(move |x: &[Tensor]| x[0].mul(&captured), &[&x], "layer").unwrap();
        y.sum_all().unwrap()
    };
    let (early, loss) = (forward(), forward());
    accumulator.backward(&loss, 1).unwrap();
    let error = accumulator.backward(&early, 1).unwrap_err();
    assert!(matches!(error.root(), Error::WeightsChanged { segment, .. } if segment == "layer"), "{error}");
    accumulator.backward(&forward(), 1).unwrap();
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let (_, parameters) = variable(&[1.]);
    let bad_scale = ScalerConfig { growth: 0., ..Default::default() };
    for config in [
        AccumulatorConfig { steps: 0, ..Default::default() },
        AccumulatorConfig { clip: Clip::GlobalNorm(0.), ..Default::default() },
        AccumulatorConfig { clip: Clip::Value(f64::NAN), ..Default::default() },
        AccumulatorConfig { scaling: Some(bad_scale), ..Default::default() },
    ] {
        let error = Accumulator::new(sgd(&parameters), config).unwrap_err();
        assert!(matches!(error, Error::Training { .. }), "{error}");
    }
    let good = SgdConfig::new(0.1);
    for config in [
        SgdConfig { learning_rate: -1., ..good },
        SgdConfig { weight_decay: f64::NAN, ..good },
        SgdConfig { momentum: 1., ..good },
        SgdConfig { dampening: 1., ..good },
        SgdConfig { nesterov: true, ..good },
        SgdConfig { nesterov: true, momentum: 0.9, dampening: 0.1, ..good },
    ] {
        assert!(matches!(Sgd::new(&parameters, config), Err(Error::Training { .. })), "{config:?}");
    }
    let good = AdamWConfig::new(0.1);
    for config in [
        AdamWConfig { learning_rate: f64::INFINITY, ..good },
        AdamWConfig { beta1: 1., ..good },
        AdamWConfig { beta2: -0.1, ..good },
        AdamWConfig { eps: -1., ..good },
        AdamWConfig { weight_decay: -1., ..good },
    ] {
        assert!(matches!(AdamW::new(&parameters, config), Err(Error::Training { .. })), "{config:?}");
    }
}

#[test]
fn gradients_of_other_parameters_are_refused() {
    let (w, parameters) = variable(&[1.]);
    let (_, others) = variable(&[1.]);
    let gradients = Gradients::new(&parameters, linear(&w, 1.).backward().unwrap()).unwrap();
    let candle = memopt::train::CandleOptimizer::<candle_nn::SGD>::new(&others, 1.).unwrap();
    let all: [Box<dyn Optimizer>; 3] = [
        Box::new(sgd(&others)),
        Box::new(AdamW::new(&others, AdamWConfig::new(1.)).unwrap()),
        Box::new(candle),
    ];
    for mut optimizer in all {
        let error = optimizer.step(&gradients).unwrap_err();
        assert!(matches!(error, Error::Training { .. }), "{error}");
    }
}

#[test]
fn what_is_no_variable_of_floats_cannot_be_trained() {
    let w = Var::zeros(2, DType::U8, CPU).unwrap();
    let error = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())]).unwrap_err();
    assert_eq!(error.to_string(), "parameter `w`: f32, f64, bf16 or f16 expected, u8 given");
}
