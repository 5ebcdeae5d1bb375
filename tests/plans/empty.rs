//! Windows without images or time steps: what a plain model does with them, every plan does.

use super::common::bits;
use super::nets::{Kind, Setup, SIDE};
use super::support::*;
use candle_core::{DType, Tensor};
use memopt::plan::{Keep, Plan};

/// What a step over a window gives: the output and the gradients, or the error.
fn step(setup: &Setup, plan: &Plan, shape: &[usize]) -> Result<Record, String> {
    let trainer = Trainer::new(|vb| setup.build(vb), DType::F32, plan.clone(), session(false)).unwrap();
    let x = Tensor::zeros(shape, DType::F32, CPU).unwrap();
    let y = trainer.net.run(&x, true).map_err(|error| error.to_string())?.into_dense("output").unwrap();
    let gradients = y.sum_all().unwrap().backward().map_err(|error| error.to_string())?;
    let of = |name: &str, t: &Tensor| (name.to_owned(), gradients.get(t).map_or(vec![], bits));
    let mut record = vec![("shape".to_owned(), y.dims().iter().map(|&dim| dim as u64).collect())];
    record.extend(trainer.named.iter().map(|(name, v)| of(name, v)));
    Ok(record)
}

const SHAPES: [[usize; 5]; 2] = [[5, 0, 2, SIDE, SIDE], [0, 2, 2, SIDE, SIDE]];

#[test]
fn layers_give_empty_outputs_and_gradients_of_zeros() {
    let setup = Setup::of([Kind::Dropout]);
    for shape in SHAPES {
        let plain = step(&setup, &Plan::new(), &shape).unwrap();
        let head = plain.iter().find(|(name, _)| name == "head.weight").unwrap();
        assert!(!head.1.is_empty() && head.1.iter().all(|&bits| bits == 0));
        for keep in [Keep::Recompute, Keep::TimeChunks(2), Keep::TimeChunks(7)] {
            let plan = Plan::new().with("pieces.0", keep).with("pool", keep).with("flatten..head", keep);
            assert_same_bits(&step(&setup, &plan, &shape).unwrap(), &plain, format!("{plan} of {shape:?}"));
        }
    }
}

#[test]
fn a_norm_of_nothing_is_the_same_error_under_every_plan() {
    let setup = Setup::of([Kind::Lif]);
    let keeps = [Keep::Recompute, Keep::TimeChunks(2), Keep::InexactTimeChunks(2), Keep::ChannelChunks(2)];
    let plans = keeps.map(|keep| Plan::new().with("pieces.0", keep)).into_iter();
    let split =
        Plan::new().with("pieces.0.proj", Keep::TimeChunks(2)).with("pieces.0.neuron", Keep::Recompute);
    for plan in plans.chain([Plan::new(), split]) {
        for shape in SHAPES {
            let error = step(&setup, &plan, &shape).unwrap_err();
            let what = "`pieces.0.proj.bn`: training needs at least two elements of a channel in the window, 0 given";
            assert!(error.contains(what), "{plan} of {shape:?}: {error}");
        }
    }
}
