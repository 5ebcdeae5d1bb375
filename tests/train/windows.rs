//! What a window of micro-batches does: when it steps, what it reports, what it keeps.

use super::nets::*;
use candle_core::Var;
use memopt::train::{lost, Accumulator, AccumulatorConfig, Clip, NamedParameters, Schedule, Sgd, SgdConfig};
use std::sync::Mutex;

/// Of the tests that lose micro-batches, which are counted for the process.
pub static LOSING: Mutex<()> = Mutex::new(());

fn sgd(parameters: &NamedParameters, rate: f64) -> Sgd {
    Sgd::new(parameters, SgdConfig::new(rate)).unwrap()
}

#[test]
fn it_steps_by_itself_and_keeps_one_set_of_buffers() {
    let (w, parameters) = variable(&[0.; 10]);
    let config = AccumulatorConfig { steps: 3, ..Default::default() };
    let mut accumulator = Accumulator::new(sgd(&parameters, 1.), config).unwrap();
    assert_eq!(accumulator.bytes(), 0);
    for round in 1..=2 {
        for pending in 1..=2 {
            assert_eq!(accumulator.backward(&linear(&w, 1.), 2).unwrap(), None);
            assert_eq!((accumulator.pending(), accumulator.bytes()), (pending, 40));
        }
        let step = accumulator.backward(&linear(&w, 4.), 2).unwrap().unwrap();
        assert_eq!((step.number, step.samples, step.micro_batches), (round, 6, 3));
        assert_eq!((step.skipped, step.clipped, step.learning_rate, step.loss_scale), (None, false, 1., 1.));
        assert!((step.gradient_norm - 2. * 10f64.sqrt()).abs() < 1e-6);
        // dropped, not zeroed
        assert_eq!((accumulator.pending(), accumulator.bytes()), (0, 0));
        assert_eq!(w.to_vec1::<f32>().unwrap(), [-2. * round as f32; 10]);
    }
    assert_eq!(accumulator.finish().unwrap(), None);
    assert_eq!((accumulator.totals().steps, accumulator.totals().samples), (2, 12));
}

#[test]
fn a_schedule_sets_the_learning_rate_of_each_step() {
    let (w, parameters) = variable(&[0.]);
    let schedule = Some(Schedule::step(1., 2, 0.5).unwrap());
    let config = AccumulatorConfig { schedule, ..Default::default() };
    let mut accumulator = Accumulator::new(sgd(&parameters, 7.), config).unwrap();
    let rates: Vec<f64> =
        (0..4).map(|_| accumulator.backward(&linear(&w, 1.), 1).unwrap().unwrap().learning_rate).collect();
    assert_eq!(rates, [1., 1., 0.5, 0.5]);
    assert_eq!(w.to_vec1::<f32>().unwrap(), [-3.]);
}

/// Trap: a weight under two names is stepped once, and its norm counts once.
#[test]
fn a_shared_weight_is_stepped_once() {
    let w = Var::new(&[3f32, 4.], CPU).unwrap();
    let named = ["encoder", "decoder"].map(|name| (name.to_owned(), w.as_tensor().clone()));
    let parameters = NamedParameters::new(named).unwrap();
    let mut accumulator = Accumulator::new(sgd(&parameters, 0.25), AccumulatorConfig::default()).unwrap();
    let loss = (w.sqr().unwrap().sum_all().unwrap() + linear(&w, 1.)).unwrap(); // used twice
    let step = accumulator.backward(&loss, 1).unwrap().unwrap();
    assert!((step.gradient_norm - (49f64 + 81.).sqrt()).abs() < 1e-9);
    assert_eq!(w.to_vec1::<f32>().unwrap(), [3. - 7. / 4., 4. - 9. / 4.]);
}

/// Neither weight decay nor momentum moves it, as when another branch of a model runs.
#[test]
fn a_parameter_without_gradient_stays_and_is_named() {
    let named = ["used", "not"].map(|name| (name.to_owned(), Var::new(&[1f32], CPU).unwrap().into_inner()));
    let [used, not] = named.clone().map(|(_, t)| Var::from_tensor(&t).unwrap());
    let parameters = NamedParameters::new(named).unwrap();
    let config = SgdConfig { momentum: 0.5, weight_decay: 0.5, ..SgdConfig::new(1.) };
    let mut accumulator = Accumulator::new(
        Sgd::new(&parameters, config).unwrap(),
        AccumulatorConfig { steps: 2, ..Default::default() },
    )
    .unwrap();
    for _ in 0..2 {
        accumulator.backward(&linear(&used, 1.), 1).unwrap();
    }
    accumulator.backward(&linear(&used, 1.), 1).unwrap();
    let step = accumulator.finish().unwrap().unwrap();
    assert_eq!(step.without_gradient, ["not"]);
    assert_eq!(not.to_vec1::<f32>().unwrap(), [1.]);
    // One micro-batch of two has it: the mean over both.
    accumulator.backward(&linear(&used, 1.), 1).unwrap();
    let step = accumulator.backward(&linear(&not, 1.), 1).unwrap().unwrap();
    assert!(step.without_gradient.is_empty());
    assert_eq!(not.to_vec1::<f32>().unwrap(), [1. - (0.5 + 0.5)]);
}

#[test]
fn clipping_is_of_the_whole_step() {
    let (w, parameters) = variable(&[0., 0.]);
    let config = AccumulatorConfig { steps: 2, clip: Clip::GlobalNorm(1.), ..Default::default() };
    let mut accumulator = Accumulator::new(sgd(&parameters, 1.), config).unwrap();
    // Each micro-batch alone would be clipped; together they cancel.
    accumulator.backward(&linear(&w, 100.), 1).unwrap();
    let step = accumulator.backward(&linear(&w, -99.), 1).unwrap().unwrap();
    assert!(!step.clipped && (step.gradient_norm - 0.5f64.sqrt()).abs() < 1e-6);
    accumulator.backward(&linear(&w, 30.), 1).unwrap();
    let step = accumulator.backward(&linear(&w, 30.), 1).unwrap().unwrap();
    assert!(step.clipped && (step.gradient_norm - 30. * 2f64.sqrt()).abs() < 1e-4);
    let moved = f64::from(w.to_vec1::<f32>().unwrap()[0]);
    assert!((moved + 0.5 + 0.5f64.sqrt()).abs() < 1e-5);
}

#[test]
fn what_is_dropped_with_micro_batches_in_it_is_counted() {
    let _alone = LOSING.lock().unwrap();
    let (w, parameters) = variable(&[0.]);
    let make = || {
        Accumulator::new(sgd(&parameters, 1.), AccumulatorConfig { steps: 4, ..Default::default() }).unwrap()
    };
    let before = lost();
    let mut accumulator = make();
    accumulator.backward(&linear(&w, 1.), 5).unwrap();
    accumulator.backward(&linear(&w, 1.), 6).unwrap();
    drop(accumulator);
    assert_eq!((lost().micro_batches - before.micro_batches, lost().samples - before.samples), (2, 11));
    let mut accumulator = make();
    accumulator.backward(&linear(&w, 1.), 3).unwrap();
    accumulator.discard();
    assert_eq!((accumulator.pending(), accumulator.bytes()), (0, 0));
    drop(accumulator);
    assert_eq!(lost().samples - before.samples, 14);
    let mut accumulator = make();
    accumulator.backward(&linear(&w, 1.), 3).unwrap();
    accumulator.finish().unwrap();
    drop(accumulator);
    assert_eq!(lost().samples - before.samples, 14);
}

#[test]
fn a_step_prints_as_one_line() {
    let (w, parameters) = variable(&[2.]);
    let config = AccumulatorConfig { clip: Clip::Value(0.5), ..Default::default() };
    let mut accumulator = Accumulator::new(sgd(&parameters, 1e-2), config).unwrap();
    let step = accumulator.backward(&linear(&w, 1.), 8).unwrap().unwrap();
    assert_eq!(
        step.to_string(),
        "step 1: loss 2.000000, gradient norm 1.0000 (clipped), learning rate 1.000e-2, 8 samples"
    );
    let loss = (linear(&w, 1.) * f64::NAN).unwrap();
    let step = accumulator.backward(&loss, 8).unwrap().unwrap();
    assert!(step.to_string().ends_with("; skipped: the loss is not finite"), "{step}");
}

/// The mean over a thousand micro-batches does not drift.
#[test]
fn many_micro_batches_are_summed_stably() {
    let (w, parameters) = variable(&[0.]);
    let looking = Looking::at(&parameters);
    let seen = looking.seen.clone();
    let config = AccumulatorConfig { steps: 1024, ..Default::default() };
    let mut accumulator = Accumulator::new(looking, config).unwrap();
    let mut exact = 0.;
    for i in 0..1024 {
        let factor = f64::from(1. + ((i * 37) % 101) as f32 / 101.);
        exact += factor / 1024.;
        accumulator.backward(&linear(&w, factor), 7).unwrap();
    }
    let got = elements(&seen.lock().unwrap()[0])[0];
    assert!((got / exact - 1.).abs() < 1e-6, "{got} {exact}");
}
