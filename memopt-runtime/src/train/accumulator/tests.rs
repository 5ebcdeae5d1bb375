//! Steps in a group of processes; here of threads.

use super::*;
use crate::nn::element::{Element, Real};
use crate::train::gradients::Gradients;
use crate::train::{Clip, ScalerConfig, Sgd, SgdConfig};
use candle_core::{CpuStorage, Device, Var};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

type Numbers = Vec<Option<Vec<f64>>>;

/// A process of a group.
#[derive(Debug)]
struct Member {
    rank: usize,
    all: Arc<All>,
}

#[derive(Debug)]
struct All {
    barrier: Barrier,
    given: Mutex<Vec<Numbers>>,
    /// How often gradients were added up.
    sums: AtomicUsize,
}

impl Member {
    fn group(size: usize) -> Vec<Member> {
        let given = Mutex::new(vec![vec![]; size]);
        let all = Arc::new(All { barrier: Barrier::new(size), given, sums: AtomicUsize::new(0) });
        (0..size).map(|rank| Member { rank, all: all.clone() }).collect()
    }

    /// What all give, by rank.
    fn gather(&self, mine: Numbers) -> Vec<Numbers> {
        self.all.given.lock()[self.rank] = mine;
        self.all.barrier.wait();
        let given = self.all.given.lock().clone();
        self.all.barrier.wait();
        given
    }

    fn reduce(&self, values: &[f64], by: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let given = self.gather(vec![Some(values.to_vec())]);
        let of =
            |i: usize| given.iter().filter_map(|numbers| Some(numbers[0].as_ref()?[i])).reduce(&by).unwrap();
        (0..values.len()).map(of).collect()
    }
}

impl Group for Member {
    fn sum_gradients(&self, gradients: &mut Gradients) -> Result<()> {
        self.all.sums.fetch_add(1, Ordering::Relaxed);
        let numbers =
            |buffer: Option<&CpuStorage>| f32::slice(buffer?).map(|v| v.iter().map(|v| v.to_f64()).collect());
        let given = self.gather(gradients.iter().map(|(_, buffer)| numbers(buffer)).collect());
        for (place, to) in gradients.places_mut().enumerate() {
            let sum = given
                .iter()
                .filter_map(|numbers| numbers[place].clone())
                .reduce(|a, b| a.iter().zip(b).map(|(a, b)| a + b).collect());
            *to = sum.map(|sum| CpuStorage::F32(sum.into_iter().map(f32::from_f64).collect()));
        }
        Ok(())
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<()> {
        values.copy_from_slice(&self.reduce(values, |a, b| a + b));
        Ok(())
    }

    fn sum_u64(&self, values: &mut [u64]) -> Result<()> {
        let sums = self.reduce(&values.iter().map(|&v| v as f64).collect::<Vec<_>>(), |a, b| a + b);
        values.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum as u64);
        Ok(())
    }

    fn max_u64(&self, values: &mut [u64]) -> Result<()> {
        let largest = self.reduce(&values.iter().map(|&v| v as f64).collect::<Vec<_>>(), f64::max);
        values.iter_mut().zip(largest).for_each(|(to, largest)| *to = largest as u64);
        Ok(())
    }
}

/// A micro-batch: its samples, and the gradients of `a` and `b`, if the loss depends on them.
type Micro = (usize, Option<f64>, Option<f64>);

/// The reports of a process, and its weights behind them.
type Ran = (Vec<Step>, Vec<f32>);

/// Runs the micro-batches of each process, `None` being `finish`: the reports of each, then its weights.
fn run(config: &AccumulatorConfig, of_ranks: &[Vec<Option<Micro>>]) -> (Vec<Ran>, usize) {
    let members = Member::group(of_ranks.len());
    let all = members[0].all.clone();
    let results = std::thread::scope(|scope| {
        let spawn = |(member, micros): (Member, &Vec<Option<Micro>>)| {
            let (config, micros) = (config.clone(), micros.clone());
            scope.spawn(move || {
                let [a, b] = [1f32, 2.].map(|value| Var::new(&[value], &Device::Cpu).unwrap());
                let named = [("a", &a), ("b", &b)].map(|(name, v)| (name.to_owned(), v.as_tensor().clone()));
                let parameters = NamedParameters::new(named).unwrap();
                let sgd = Sgd::new(&parameters, SgdConfig { momentum: 0.5, ..SgdConfig::new(1.) }).unwrap();
                let mut accumulator = Accumulator::in_group(sgd, config, Arc::new(member)).unwrap();
                let mut steps = vec![];
                for micro in micros {
                    let Some((count, of_a, of_b)) = micro else {
                        steps.extend(accumulator.finish().unwrap());
                        continue;
                    };
                    let term = |v: &Var, factor: Option<f64>| {
                        factor.map(|factor| v.affine(factor, 0.).unwrap().sum_all().unwrap())
                    };
                    let terms = [term(&a, of_a), term(&b, of_b)];
                    let loss = terms.into_iter().flatten().reduce(|a, b| (a + b).unwrap()).unwrap();
                    steps.extend(accumulator.backward(&loss, count).unwrap());
                }
                let weight = |v: &Var| v.to_vec1::<f32>().unwrap()[0];
                (steps, vec![weight(&a), weight(&b)])
            })
        };
        let threads: Vec<_> = members.into_iter().zip(of_ranks).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    (results, all.sums.load(Ordering::Relaxed))
}

fn config(steps: usize) -> AccumulatorConfig {
    AccumulatorConfig { steps, ..Default::default() }
}

/// Fails unless all processes say and have the same.
#[track_caller]
fn same(results: &[Ran]) -> &Ran {
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    &results[0]
}

#[test]
fn a_group_steps_as_one_process_with_all_micro_batches() {
    // First counts that differ, and a sum that is exact.
    let ranks = [
        vec![Some((2, Some(1.), Some(4.))), Some((4, Some(3.), Some(0.5)))],
        vec![Some((8, Some(-2.), Some(1.))), Some((2, Some(6.), Some(2.)))],
    ];
    let (group, sums) = run(&config(2), &ranks);
    let (alone, _) = run(&config(4), &[ranks.concat()]);
    assert_eq!(same(&group), same(&alone));
    assert_eq!((group[0].0[0].samples, group[0].0[0].micro_batches), (16, 4));
    assert_eq!(group[0].1, [1. - (2. + 12. - 16. + 12.) / 16., 2. - (8. + 2. + 8. + 4.) / 16.]);
    // Once in each of the two processes: gradients go over the wire once a step, not once a micro-batch.
    assert_eq!(sums, 2);
}

#[test]
fn a_parameter_that_one_process_has_no_gradient_of_is_stepped_in_all() {
    let ranks = [vec![Some((1, Some(1.), None))], vec![Some((1, Some(1.), Some(3.)))]];
    let (group, _) = run(&config(1), &ranks);
    let (steps, weights) = same(&group);
    assert!(steps[0].without_gradient.is_empty());
    assert_eq!(*weights, [0., 0.5]);
}

/// Trap: inf on one rank only.
#[test]
fn all_skip_what_is_not_finite_in_one() {
    let scaling = Some(ScalerConfig::default());
    for (bad, why) in [(1e34, Skipped::GradientNotFinite), (f64::NAN, Skipped::LossNotFinite)] {
        let config = AccumulatorConfig { scaling, clip: Clip::GlobalNorm(1e30), ..config(1) };
        let good = Some((1, Some(1.), Some(1.)));
        let ranks = [vec![good, good], vec![Some((1, Some(bad), Some(1.))), good]];
        let (group, _) = run(&config, &ranks);
        // A loss of NaN is no equal of itself.
        let (first, second) = (&group[0], &group[1]);
        assert_eq!((first.0[0].skipped, second.0[0].skipped), (Some(why), Some(why)));
        assert_eq!((&first.0[1], &first.1), (&second.0[1], &second.1));
        assert_eq!((first.0[1].loss_scale, first.0[1].number), (32768., 1));
        assert_eq!(first.1, [0., 1.]);
    }
}

#[test]
fn at_the_end_all_finish_whether_or_not_they_have_micro_batches_left() {
    let ranks = [vec![Some((3, Some(2.), Some(1.))), None, None], vec![None, None]];
    let (group, sums) = run(&config(4), &ranks);
    let (steps, weights) = same(&group);
    assert_eq!((steps.len(), steps[0].samples, weights.as_slice()), (1, 3, [-1f32, 1.].as_slice()));
    assert_eq!(sums, 2, "the second time there is nothing in any of them");
}
