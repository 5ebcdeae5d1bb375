//! The gradient of a step is that of the large batch, however that was split.

use super::nets::*;
use candle_core::Tensor;
use memopt::checkpoint::Planned;
use memopt::module::FrozenNorms;
use memopt::train::{Accumulator, AccumulatorConfig, Norms, Sgd, SgdConfig};
use proptest::prelude::*;

const SAMPLES: usize = 12;

/// The gradient of the mean over the batch, by one plain backward.
fn reference(net: &Planned<Net>, data: &Data, start: usize, n: usize) -> Vec<Option<Tensor>> {
    let gradients = data.loss(net, start, n).backward().unwrap();
    parameters(net).iter().map(|parameter| gradients.get(parameter.tensor()).cloned()).collect()
}

fn warmed(has_norm: bool, plan: &str) -> (Planned<Net>, Option<FrozenNorms>) {
    let net = net(has_norm, plan);
    if has_norm {
        // Running statistics that are not those of the beginning.
        Data::new(8, 77).loss(&net, 0, 8);
    }
    let frozen = has_norm.then(|| net.session().freeze_norms());
    (net, frozen)
}

/// Accumulates the pieces, with `steps` of them a window, and checks each step against the large batch.
fn check(has_norm: bool, plan: &str, pieces: &[usize], steps: usize) {
    let data = Data::new(pieces.iter().sum(), 3);
    let (net, _frozen) = warmed(has_norm, plan);
    let norms = if has_norm { Norms::Frozen(net.session().clone()) } else { Norms::PerMicro };
    let looking = Looking::at(&parameters(&net));
    let seen = looking.seen.clone();
    let config = AccumulatorConfig { steps, norms, ..Default::default() };
    let mut accumulator = Accumulator::new(looking, config).unwrap();
    let (mut start, mut reports) = (0, vec![]);
    for &n in pieces {
        reports.extend(accumulator.backward(&data.loss(&net, start, n), n).unwrap());
        start += n;
    }
    reports.extend(accumulator.finish().unwrap());
    assert_eq!(accumulator.pending(), 0);
    assert_eq!(reports.len(), pieces.len().div_ceil(steps));
    let mut start = 0;
    for ((window, report), gradient) in pieces.chunks(steps).zip(&reports).zip(&*seen.lock().unwrap()) {
        let n = window.iter().sum::<usize>();
        assert_eq!((report.samples, report.micro_batches), (n as u64, window.len() as u64));
        let expected = reference(&net, &data, start, n);
        let far = distance(&elements(gradient), &elements(&expected));
        assert!(far <= 1e-6, "{pieces:?} by {steps}: {far:e}");
        let loss = data.loss(&net, start, n).to_scalar::<f32>().unwrap();
        assert!((report.loss / f64::from(loss) - 1.).abs() < 1e-6);
        start += n;
    }
}

/// Sizes of at least 1 that add up to the samples.
fn split() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any::<bool>(), SAMPLES - 1).prop_map(|cuts| {
        let mut pieces = vec![1];
        for cut in cuts {
            match (cut, pieces.last_mut()) {
                (false, Some(last)) => *last += 1,
                _ => pieces.push(1),
            }
        }
        pieces
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_split_has_the_gradient_of_the_large_batch(pieces in split(), steps in 1usize..13, has_norm: bool) {
        check(has_norm, "", &pieces, steps);
    }
}

#[test]
fn splits_under_plans() {
    for plan in ["block: gc", "block: tcgc:2 bit", "block: ccgc:2"] {
        check(false, if plan.contains("ccgc") { "" } else { plan }, &[4, 4, 4], 3);
        check(true, plan, &[5, 3, 4], 2);
    }
}

/// Trap: the mean of the means of unequal micro-batches is another gradient.
#[test]
fn unequal_micro_batches_are_weighted_by_their_counts() {
    check(false, "", &[1, 7, 4], 3);
    let (net, data) = (net(false, ""), Data::new(SAMPLES, 3));
    let whole = elements(&reference(&net, &data, 0, SAMPLES));
    let pieces = [(0, 1), (1, 7), (8, 4)].map(|(start, n)| elements(&reference(&net, &data, start, n)));
    let means: Vec<f64> =
        (0..whole.len()).map(|i| pieces.iter().map(|piece| piece[i]).sum::<f64>() / 3.).collect();
    assert!(distance(&means, &whole) > 1e-2, "the test must tell them apart");
}

/// Trap: the last, partial window of an epoch is stepped on, by its own samples.
#[test]
fn the_last_partial_window_is_weighted_and_stepped() {
    check(false, "", &[2, 2, 2, 2, 2, 1], 4);
}

#[test]
fn one_micro_batch_a_step_is_a_plain_loop_to_the_bit() {
    let data = Data::new(12, 3);
    let run = |accumulated: bool| {
        let net = net(true, "block: gc");
        let parameters = parameters(&net);
        let sgd = Sgd::new(&parameters, SgdConfig { momentum: 0.9, ..SgdConfig::new(0.1) }).unwrap();
        let mut accumulator = Accumulator::new(sgd, AccumulatorConfig::default()).unwrap();
        let mut velocity: Vec<Option<Tensor>> = vec![None; parameters.len()];
        for start in [0, 3, 6, 9] {
            let loss = data.loss(&net, start, 3);
            if accumulated {
                let step = accumulator.backward(&loss, 3).unwrap().unwrap();
                assert_eq!(step.loss, f64::from(loss.to_scalar::<f32>().unwrap()));
                continue;
            }
            let gradients = loss.backward().unwrap();
            for (parameter, velocity) in parameters.iter().zip(&mut velocity) {
                let gradient = gradients.get(parameter.tensor()).unwrap().clone();
                let moved = match velocity.take() {
                    None => gradient,
                    Some(old) => ((old * 0.9).unwrap() + gradient).unwrap(),
                };
                let variable = candle_core::Var::from_tensor(parameter.tensor()).unwrap();
                variable.set(&(parameter.tensor().detach() - (&moved * 0.1).unwrap()).unwrap()).unwrap();
                *velocity = Some(moved);
            }
        }
        weights(&parameters)
    };
    assert_eq!(run(true), run(false));
}

/// Equal micro-batches are added as they are, and divided by a power of two.
#[test]
fn every_plan_accumulates_the_same_bits() {
    let run = |plan: &str| {
        let (net, data) = (net(true, plan), Data::new(8, 3));
        let looking = Looking::at(&parameters(&net));
        let seen = looking.seen.clone();
        let mut accumulator =
            Accumulator::new(looking, AccumulatorConfig { steps: 4, ..Default::default() }).unwrap();
        for start in [0, 2, 4, 6] {
            accumulator.backward(&data.loss(&net, start, 2), 2).unwrap();
        }
        let gradient = elements(&seen.lock().unwrap()[0]);
        gradient.into_iter().map(f64::to_bits).collect::<Vec<_>>()
    };
    let plain = run("");
    for plan in ["block: gc", "block: gc bit", "block: tcgc:3", "block: ccgc:2"] {
        assert_eq!(run(plan), plain, "{plan}");
    }
}

#[test]
fn frozen_norms_are_frozen_for_as_long_as_the_accumulator_lives() {
    let (net, data) = (net(true, ""), Data::new(4, 3));
    let session = net.session().clone();
    let config = AccumulatorConfig { norms: Norms::Frozen(session.clone()), ..Default::default() };
    let accumulator = Accumulator::new(Looking::at(&parameters(&net)), config).unwrap();
    assert!(session.has_frozen_norms());
    let trained = data.loss(&net, 0, 4).to_scalar::<f32>().unwrap();
    drop(accumulator);
    assert!(!session.has_frozen_norms());
    assert_ne!(data.loss(&net, 0, 4).to_scalar::<f32>().unwrap(), trained);
}
