//! Micro-batches that fit a budget.

use super::nets::*;
use candle_core::{DType, Tensor};
use memopt::search::{max_batch, plan_for_batch, predict_plan, Options};
use memopt::train::suggest;
use memopt::Error;

fn sample(n: usize) -> Tensor {
    Tensor::ones((3, n, 2, 6, 6), DType::F32, CPU).unwrap()
}

#[test]
fn a_large_batch_is_cut_into_micro_batches_that_fit() {
    let net = net(true, "");
    let options = Options::default();
    let fits = |budget: usize| max_batch(&*net, &sample(1), &options, budget).unwrap().map_or(0, |(n, _)| n);
    let mut last = usize::MAX;
    for budget in [50_000_000, 400_000, 200_000, 120_000] {
        let found = suggest(&*net, &sample(1), &options, 64, budget).unwrap();
        assert!(found.micro_batch <= fits(budget));
        assert!(found.micro_batch * found.steps >= 64 && found.micro_batch * (found.steps - 1) < 64);
        assert!(found.steps.is_power_of_two() && found.micro_batch >= 4, "{found:?}");
        assert!(found.micro_batch <= last);
        last = found.micro_batch;
        // What is predicted for a real batch of that size is within the budget.
        let prediction = predict_plan(&*net, &sample(found.micro_batch), &found.plan).unwrap();
        assert!(prediction.peak < budget);
    }
    assert!(last < 64, "the budgets must differ");
}

#[test]
fn the_plan_is_that_of_the_micro_batch() {
    let net = net(true, "");
    let options = Options::default();
    let found = suggest(&*net, &sample(2), &options, 16, 50_000_000).unwrap();
    assert_eq!((found.micro_batch, found.steps), (16, 1));
    // So much memory is enough without recomputing anything.
    assert!(found.plan.is_empty());
    assert_eq!(plan_for_batch(&*net, &sample(2), &options, 16, 50_000_000).unwrap(), found.plan);
}

#[test]
fn a_budget_in_which_not_one_sample_fits_says_what_would() {
    let net = net(true, "");
    let options = Options::default();
    let error = suggest(&*net, &sample(1), &options, 64, 1000).unwrap_err();
    let Error::Budget { budget: 1000, smallest, resident } = error else { panic!("{error}") };
    assert!(resident < smallest);
    assert!(suggest(&*net, &sample(1), &options, 64, smallest).is_ok());
    assert!(matches!(suggest(&*net, &sample(1), &options, 0, 1000), Err(Error::Options { .. })));
}
