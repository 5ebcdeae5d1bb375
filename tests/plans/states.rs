//! Neurons whose states go on from call to call.

use super::common::gradient;
use super::nets::{Kind, Setup};
use super::support::*;
use memopt::module::Session;
use memopt::plan::{Keep, Plan};
use memopt::Error;

#[test]
fn states_carried_from_call_to_call_give_the_same_bits() {
    let setup = Setup { steps: 4, ..Setup::of([Kind::Lif, Kind::Plif]) };
    let keeps = [Keep::Recompute, Keep::TimeChunks(2), Keep::TimeChunks(3)];
    let plain = setup.check(keeps.map(|keep| setup.plan(keep)), true);
    let fresh = setup.train(Plan::new(), Session::new(7)).unwrap();
    assert!(!differing(&fresh, &plain).is_empty(), "states make no difference: the test shows nothing");
}

#[test]
fn states_of_another_batch_are_refused_until_they_are_reset() {
    let setup = Setup::of([Kind::Lif, Kind::Plif]);
    let whole = setup.data().windows.remove(0);
    let half = whole.narrow(1, 0, 1).unwrap().contiguous().unwrap();
    for keep in [Keep::Recompute, Keep::TimeChunks(2)] {
        let plan = setup.plan(keep);
        let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan, session(true)).unwrap();
        trainer.step(&whole).unwrap();
        let error = trainer.step(&half).unwrap_err();
        assert!(matches!(&error, Error::Segment { segment, .. } if segment == "pieces.0"), "{error}");
        assert!(error.to_string().contains("reset the states"), "{error}");
        trainer.net.session().reset_states();
        trainer.step(&half).unwrap();
    }
}

/// Gradients do not go back into earlier calls, so that their graphs are not kept.
#[test]
fn a_call_can_be_gone_back_through_after_the_next() {
    let setup = Setup::of([Kind::Lif, Kind::Plif]);
    let run = |plan: Plan| {
        let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan, session(true)).unwrap();
        let losses: Vec<_> = setup.data().windows.iter().map(|x| trainer.loss(x).unwrap()).collect();
        let gradients = |loss: &candle_core::Tensor| {
            let gradients = loss.backward().unwrap();
            trainer
                .named
                .iter()
                .map(|(name, v)| (name.clone(), gradient(&gradients, v).map_or(vec![], |g| g.2)))
                .collect::<Record>()
        };
        losses.iter().flat_map(gradients).collect::<Record>()
    };
    let plain = run(Plan::new());
    assert!(alive(&plain) > 10);
    for keep in [Keep::Recompute, Keep::TimeChunks(2)] {
        assert_same_bits(&run(setup.plan(keep)), &plain, keep);
    }
}
