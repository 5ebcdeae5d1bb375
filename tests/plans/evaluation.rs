//! Evaluation of a model that is being trained.

use super::common::assert_same;
use super::nets::Setup;
use super::norms::pre_activation;
use super::support::*;
use candle_core::{DType, ModuleT, Result};
use memopt::plan::{Keep, Plan};

#[test]
fn evaluation_does_not_move_carried_states() {
    let data = Data::new(3, &[3, 2, 2, 4, 4], DType::F32, 1);
    let run = |evaluate: bool| {
        let plan: Plan = "body: gc".parse().unwrap();
        let trainer = Trainer::new(pre_activation, DType::F32, plan, session(true)).unwrap();
        let mut record = Record::new();
        for x in &data.windows {
            let loss = trainer.loss(x).unwrap();
            if evaluate {
                // another batch size, between a forward and its backward
                trainer.net.predict(x.narrow(1, 0, 1).unwrap().contiguous().unwrap()).unwrap();
            }
            record.extend(trainer.descend(&loss, None).unwrap());
        }
        record
    };
    assert_same_bits(&run(true), &run(false), "evaluated");
}

#[test]
fn evaluation_between_steps_disturbs_nothing() {
    let setup = Setup::default();
    let run = |plan: Plan, evaluate: bool| -> Result<Record> {
        let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan, session(false))?;
        let mut record = Record::new();
        for x in setup.data().windows {
            let loss = trainer.loss(&x)?;
            if evaluate {
                let y = trainer.net.predict(&x)?.into_dense("output")?;
                assert!(!y.track_op());
                assert_same(&y, &trainer.net.forward_t(&x, false)?);
            }
            record.extend(trainer.descend(&loss, None)?);
        }
        record.extend(trainer.variables());
        Ok(record)
    };
    let plain = run(Plan::new(), false).unwrap();
    for plan in [Plan::new(), setup.plan(Keep::Recompute), setup.split(), setup.plan(Keep::TimeChunks(2))] {
        assert_same_bits(&run(plan.clone(), true).unwrap(), &plain, plan);
    }
}
