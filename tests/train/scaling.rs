//! The dynamic loss scale, and steps that are skipped.

use super::common::{bits, Values};
use super::nets::*;
use candle_core::{DType, Var};
use memopt::train::{
    Accumulator, AccumulatorConfig, AdamW, AdamWConfig, Clip, NamedParameters, ScalerConfig, Sgd,
};
use memopt::train::{SgdConfig, Skipped};

fn scaling(interval: u64) -> Option<ScalerConfig> {
    Some(ScalerConfig { interval, ..Default::default() })
}

/// A gradient that overflows under the first scale, and one half of it does not.
#[test]
fn a_step_that_overflows_is_skipped_and_the_scale_halves_and_recovers() {
    let (w, parameters) = variable(&[1.]);
    let sgd = Sgd::new(&parameters, SgdConfig { momentum: 0.9, ..SgdConfig::new(1e-34) }).unwrap();
    let config = AccumulatorConfig { steps: 2, scaling: scaling(2), ..Default::default() };
    let mut accumulator = Accumulator::new(sgd, config).unwrap();
    let mut step = |factor: f64| {
        assert!(accumulator.backward(&linear(&w, 1.), 3).unwrap().is_none());
        let step = accumulator.backward(&linear(&w, factor), 3).unwrap().unwrap();
        (step.skipped, step.loss_scale, accumulator.totals(), w.to_vec1::<f32>().unwrap()[0])
    };
    let overflow = Some(Skipped::GradientNotFinite);
    let (skipped, scale, totals, weight) = step(1e34); // 65536e34 is above 3.4e38
    assert_eq!((skipped, scale, weight), (overflow, 65536., 1.));
    assert_eq!((totals.steps, totals.skipped_steps, totals.skipped_samples), (0, 1, 6));
    let (skipped, scale, totals, weight) = step(1e34); // 32768e34 is not
    assert_eq!((skipped, scale, totals.steps), (None, 32768., 1));
    assert!((weight - 0.5).abs() < 1e-6);
    assert_eq!(step(1.).1, 32768.);
    let (skipped, scale, totals, _) = step(1e34); // two good steps: it grew, and is too large again
    assert_eq!((skipped, scale), (overflow, 65536.));
    assert_eq!((totals.steps, totals.skipped_steps, totals.skipped_samples), (2, 2, 12));
    assert_eq!(step(1.).1, 32768.);
}

/// Trap: clip before unscale, unscale twice.
#[test]
fn the_scale_changes_no_bit_of_clipped_steps_and_reports() {
    let run = |scaling: Option<ScalerConfig>| {
        let (net, data) = (net(true, "block: gc"), Data::new(24, 3));
        let parameters = parameters(&net);
        let adamw = AdamW::new(&parameters, AdamWConfig::new(0.01)).unwrap();
        let config =
            AccumulatorConfig { steps: 2, clip: Clip::GlobalNorm(0.1), scaling, ..Default::default() };
        let mut accumulator = Accumulator::new(adamw, config).unwrap();
        let mut reports = vec![];
        for start in (0..24).step_by(4) {
            let step = accumulator.backward(&data.loss(&net, start, 4), 4).unwrap();
            reports
                .extend(step.map(|step| (step.loss.to_bits(), step.gradient_norm.to_bits(), step.clipped)));
        }
        assert!(reports.iter().any(|(.., clipped)| *clipped));
        (reports, weights(&parameters))
    };
    let plain = run(None);
    assert_eq!(run(scaling(2000)), plain);
    assert_eq!(run(scaling(1)), plain); // the scale moves at each step
}

#[test]
fn a_loss_that_is_not_finite_skips_its_step_and_no_other() {
    for scaling in [None, scaling(2000)] {
        for bad in [f64::NAN, f64::INFINITY] {
            let (w, parameters) = variable(&[1.]);
            let sgd = Sgd::new(&parameters, SgdConfig::new(1.)).unwrap();
            let config = AccumulatorConfig { steps: 2, scaling, ..Default::default() };
            let mut accumulator = Accumulator::new(sgd, config).unwrap();
            accumulator.backward(&linear(&w, 1.), 1).unwrap();
            let step = accumulator.backward(&linear(&w, bad), 2).unwrap().unwrap();
            assert_eq!(step.skipped, Some(Skipped::LossNotFinite));
            assert!(!step.loss.is_finite());
            assert_eq!(accumulator.totals().skipped_samples, 3);
            assert_eq!(w.to_vec1::<f32>().unwrap(), [1.]);
            assert_eq!(accumulator.scaler().map(|scaler| scaler.scale()), scaling.map(|_| 32768.));
            accumulator.backward(&linear(&w, 1.), 1).unwrap();
            let step = accumulator.backward(&linear(&w, 1.), 1).unwrap().unwrap();
            assert_eq!((step.skipped, step.number), (None, 1));
            assert_eq!(w.to_vec1::<f32>().unwrap(), [0.]);
        }
    }
}

/// The gradient of a finite loss, without a scale.
#[test]
fn a_gradient_that_is_not_finite_skips_the_step() {
    let (w, parameters) = variable(&[0., 4.]);
    let mut accumulator =
        Accumulator::new(Sgd::new(&parameters, SgdConfig::new(1.)).unwrap(), AccumulatorConfig::default())
            .unwrap();
    let loss = w.sqrt().unwrap().sum_all().unwrap();
    let step = accumulator.backward(&loss, 1).unwrap().unwrap();
    assert_eq!((step.skipped, step.loss), (Some(Skipped::GradientNotFinite), 2.));
    assert_eq!(w.to_vec1::<f32>().unwrap(), [0., 4.]);
}

/// In f16 a gradient of 1e-8 vanishes, and one of 1 overflows under 65536.
#[test]
fn small_gradients_of_f16_survive_by_the_scale() {
    let run = |scaling: Option<ScalerConfig>| {
        let w = Var::from_tensor(&Values::new(1).tensor(&[8], DType::F16).unwrap()).unwrap();
        let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())]).unwrap();
        let looking = Looking::at(&parameters);
        let seen = looking.seen.clone();
        let config = AccumulatorConfig { scaling, ..Default::default() };
        let mut accumulator = Accumulator::new(looking, config).unwrap();
        // The gradient passes through f16 as 1e-8 times the scale.
        let loss = w.affine(1., 0.).unwrap().to_dtype(DType::F32).unwrap().affine(1e-8, 0.).unwrap();
        accumulator.backward(&loss.sum_all().unwrap(), 1).unwrap();
        let gradient = elements(&seen.lock().unwrap()[0])[0];
        gradient
    };
    assert_eq!(run(None), 0.);
    assert!((run(scaling(2000)) / 1e-8 - 1.).abs() < 1e-3);

    // A loss in f16 is scaled in f32.
    let w = Var::from_tensor(&Values::new(1).tensor(&[8], DType::F16).unwrap()).unwrap();
    let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())]).unwrap();
    let sgd = Sgd::new(&parameters, SgdConfig::new(0.5)).unwrap();
    let config = AccumulatorConfig { scaling: scaling(2000), ..Default::default() };
    let mut accumulator = Accumulator::new(sgd, config).unwrap();
    let before = bits(&w);
    let loss = || w.sum_all().unwrap();
    let step = accumulator.backward(&loss(), 1).unwrap().unwrap();
    assert_eq!(step.skipped, Some(Skipped::GradientNotFinite));
    assert_eq!(bits(&w), before);
    let step = accumulator.backward(&loss(), 1).unwrap().unwrap();
    assert_eq!((step.skipped, step.loss_scale), (None, 32768.));
    assert_ne!(bits(&w), before);
}
