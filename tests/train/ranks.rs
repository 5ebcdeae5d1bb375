//! Ranks that train together are one process with the large batch.

use super::nets::*;
use candle_core::Tensor;
use memopt::checkpoint::Planned;
use memopt::dist::{Communicator, ThreadRank, Threads};
use memopt::module::Session;
use memopt::train::{
    synchronized_norms, Accumulator, AccumulatorConfig, AdamW, AdamWConfig, Norms, ScalerConfig, Skipped,
    Step,
};
use std::sync::Arc;

const SAMPLES: usize = 24;

/// Runs ranks in threads; gives what each gives.
fn group<T: Send>(ranks: usize, run: impl Fn(Arc<ThreadRank>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let all: Vec<_> = Threads::group(ranks)
            .into_iter()
            .map(|rank| {
                let run = &run;
                scope.spawn(move || run(Arc::new(rank)))
            })
            .collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The gradient of one step over all ranks, and the bytes that this rank sent for it.
fn gradient_with(
    net: &Planned<Net>,
    rank: Arc<ThreadRank>,
    data: &Data,
    pieces: &[(usize, usize)],
    norms: Norms,
) -> (Vec<Option<Tensor>>, Step, u64) {
    let looking = Looking::at(&parameters(net));
    let seen = looking.seen.clone();
    let config = AccumulatorConfig { steps: pieces.len(), norms, ..Default::default() };
    let mut accumulator = Accumulator::of_ranks(looking, config, rank.clone()).unwrap();
    let before = rank.bytes_sent();
    let mut step = None;
    for &(start, n) in pieces {
        step = accumulator.backward(&data.loss(net, start, n), n).unwrap();
    }
    let gradients = seen.lock().unwrap().pop().unwrap();
    (gradients, step.unwrap(), rank.bytes_sent() - before)
}

fn gradient(
    net: &Planned<Net>,
    rank: Arc<ThreadRank>,
    data: &Data,
    pieces: &[(usize, usize)],
) -> (Vec<Option<Tensor>>, Step, u64) {
    gradient_with(net, rank, data, pieces, Norms::PerMicro)
}

#[test]
fn any_split_over_ranks_has_the_gradient_of_the_large_batch() {
    let data = Data::new(SAMPLES, 3);
    let whole = net(false, "");
    let store = data.loss(&whole, 0, SAMPLES).backward().unwrap();
    let expected: Vec<Option<Tensor>> =
        parameters(&whole).iter().map(|parameter| store.get(parameter.tensor()).cloned()).collect();
    // Two ranks, then four; equal and unequal micro-batches.
    let splits: [&[&[(usize, usize)]]; 3] = [
        &[&[(0, 6), (6, 6)], &[(12, 6), (18, 6)]],
        &[&[(0, 1), (1, 4)], &[(5, 12), (17, 7)]],
        &[&[(0, 5)], &[(5, 1)], &[(6, 10)], &[(16, 8)]],
    ];
    for split in splits {
        let ran = group(split.len(), |rank| {
            let pieces = split[rank.rank()];
            gradient(&net(false, "block: gc"), rank, &data, pieces)
        });
        let first: Vec<u64> = elements(&ran[0].0).into_iter().map(f64::to_bits).collect();
        for (gradients, step, _) in &ran {
            assert_eq!(
                (step.samples, step.micro_batches),
                (SAMPLES as u64, split.iter().flat_map(|s| *s).count() as u64)
            );
            let own: Vec<u64> = elements(gradients).into_iter().map(f64::to_bits).collect();
            assert_eq!(own, first, "ranks differ");
            let far = distance(&elements(gradients), &elements(&expected));
            assert!(far <= 1e-6, "{split:?}: {far:e}");
        }
    }
}

#[test]
fn synchronized_norms_have_the_gradient_of_the_large_batch_too() {
    let data = Data::new(SAMPLES, 3);
    let whole = net(true, "");
    let store = data.loss(&whole, 0, SAMPLES).backward().unwrap();
    let expected: Vec<Option<Tensor>> =
        parameters(&whole).iter().map(|parameter| store.get(parameter.tensor()).cloned()).collect();
    for plan in ["", "block: gc", "block: tcgc:3", "block: ccgc:2"] {
        let split = [(0, 7), (7, 17)];
        let ran = group(2, |rank| {
            let session = Session::new(0).with_norm_group(synchronized_norms(rank.clone()));
            let net = net(true, plan).with_session(session.clone());
            let pieces = [split[rank.rank()]];
            gradient_with(&net, rank, &data, &pieces, Norms::Synchronized(session))
        });
        for (gradients, ..) in &ran {
            let far = distance(&elements(gradients), &elements(&expected));
            assert!(far <= 1e-5, "{plan}: {far:e}");
        }
    }
}

/// Gradients cross the wire once a step: K micro-batches take as much as one.
#[test]
fn accumulation_sends_as_much_as_one_micro_batch() {
    let data = Data::new(SAMPLES, 3);
    let sent = |steps: usize| {
        let n = SAMPLES / 2 / steps;
        let ran = group(2, |rank| {
            let begin = rank.rank() * SAMPLES / 2;
            let pieces: Vec<_> = (0..steps).map(|i| (begin + i * n, n)).collect();
            gradient(&net(false, ""), rank, &data, &pieces).2
        });
        ran[0]
    };
    let each_by_itself = 4 * sent(1);
    assert!(sent(4) > 0 && sent(4) * 4 == each_by_itself, "{} and {each_by_itself}", sent(4));
}

#[test]
fn ranks_agree_on_skipped_steps_and_the_loss_scale_and_stay_the_same() {
    let ran = group(3, |rank| {
        let (w, parameters) = variable(&[1., -2.]);
        let scaling = ScalerConfig { initial_scale: 1024., ..Default::default() };
        let config = AccumulatorConfig { scaling: Some(scaling), ..Default::default() };
        let adamw = AdamW::new(&parameters, AdamWConfig::new(0.1)).unwrap();
        let mut accumulator = Accumulator::of_ranks(adamw, config, rank.clone()).unwrap();
        let mut seen = vec![];
        for step in 0..6 {
            // One rank alone overflows in the third step.
            let factor = if step == 2 && rank.rank() == 1 { 1e36 } else { 0.5 + rank.rank() as f64 };
            let report = accumulator.backward(&linear(&w, factor), 1).unwrap().unwrap();
            seen.push((report.skipped, report.loss_scale));
        }
        (seen, weights(&parameters))
    });
    assert_eq!(ran[0], ran[1]);
    assert_eq!(ran[0], ran[2]);
    assert_eq!(ran[0].0[2].0, Some(Skipped::GradientNotFinite));
    assert_eq!(ran[0].0[3], (None, 512.));
}

/// An epoch whose last window one rank has nothing for.
#[test]
fn a_rank_without_a_tail_steps_with_the_others() {
    let data = Data::new(SAMPLES, 3);
    let ran = group(2, |rank| {
        let net = net(false, "");
        let looking = Looking::at(&parameters(&net));
        let config = AccumulatorConfig { steps: 2, ..Default::default() };
        let mut accumulator = Accumulator::of_ranks(looking, config, rank.clone()).unwrap();
        if rank.rank() == 0 {
            accumulator.backward(&data.loss(&net, 0, 5), 5).unwrap();
        }
        let step = accumulator.finish().unwrap();
        step.map(|step| (step.samples, step.loss.to_bits(), step.without_gradient.len()))
    });
    assert_eq!(ran[0], ran[1]);
    assert_eq!(ran[0].map(|step| (step.0, step.2)), Some((5, 0)));
}

#[test]
fn norms_that_are_not_coupled_cannot_be_synchronized() {
    let (_, parameters) = variable(&[1.]);
    let config = AccumulatorConfig { norms: Norms::Synchronized(Session::new(0)), ..Default::default() };
    let error = Accumulator::new(Looking::at(&parameters), config).unwrap_err().to_string();
    assert!(error.contains("with_norm_group"), "{error}");
}

/// The other ranks' norms wait for the sums of the one whose loss is not finite.
#[test]
fn a_loss_that_is_not_finite_on_one_rank_skips_the_step_of_all_also_with_synchronized_norms() {
    let data = Data::new(SAMPLES, 3);
    let ran = group(2, |rank| {
        let session = Session::new(0).with_norm_group(synchronized_norms(rank.clone()));
        let net = net(true, "block: gc").with_session(session.clone());
        let config =
            AccumulatorConfig { steps: 2, norms: Norms::Synchronized(session), ..Default::default() };
        let mut accumulator =
            Accumulator::of_ranks(Looking::at(&parameters(&net)), config, rank.clone()).unwrap();
        let mut seen = vec![];
        for step in 0..6 {
            let factor = if step == 2 && rank.rank() == 1 { f64::NAN } else { 1. };
            let loss = (data.loss(&net, 4 * step, 4).affine(factor, 0.)).unwrap();
            seen.extend(accumulator.backward(&loss, 4).unwrap().map(|step| step.skipped));
        }
        seen
    });
    assert_eq!(ran[0], [None, Some(Skipped::LossNotFinite), None]);
    assert_eq!(ran[0], ran[1]);
}

#[test]
fn half_precision_holds_the_counts_of_synchronized_micro_batches() {
    for dtype in [candle_core::DType::F16, candle_core::DType::BF16] {
        let w = candle_core::Var::ones(2, dtype, CPU).unwrap();
        let parameters =
            memopt::train::NamedParameters::new([("w".to_owned(), w.as_tensor().clone())]).unwrap();
        let rank = Threads::group(1).pop().map(Arc::new).unwrap();
        let session = Session::new(0).with_norm_group(synchronized_norms(rank.clone()));
        let looking = Looking::at(&parameters);
        let seen = looking.seen.clone();
        let config = AccumulatorConfig { norms: Norms::Synchronized(session), ..Default::default() };
        let mut accumulator = Accumulator::of_ranks(looking, config, rank).unwrap();
        for (count, dtype) in [(257, dtype), (70_000, candle_core::DType::F32)] {
            // (The gradient of a loss in f16 is in f16 itself, and holds no 70,000.)
            let loss = (w.to_dtype(candle_core::DType::F32).unwrap().sum_all().unwrap() / 4.).unwrap();
            let step = accumulator.backward(&loss.to_dtype(dtype).unwrap(), count).unwrap().unwrap();
            assert_eq!(step.skipped, None, "{dtype:?} {count}");
            let gradient = elements(&seen.lock().unwrap().pop().unwrap());
            assert!(
                gradient.iter().all(|g| (g - 0.25).abs() < 0.25 / 128.),
                "{dtype:?} {count}: {gradient:?}"
            );
        }
    }
}

/// Ranks that are at different norms must not add up what does not belong together.
#[test]
fn ranks_at_different_norms_are_an_error() {
    use memopt::module::NormStatistics;
    let ran = group(2, |rank| {
        let norms = synchronized_norms(rank.clone());
        let own = NormStatistics { mean: vec![1.], squares: vec![2.], count: 3. };
        let part = if rank.rank() == 0 { "first" } else { "second" };
        norms.statistics(part, &own).unwrap_err().to_string()
    });
    assert!(ran.iter().all(|error| error.contains("different norms")), "{ran:?}");
}
