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

/// As in fine-tuning with frozen statistics.
#[test]
fn an_evaluation_can_be_gone_back_through() {
    for setup in [Setup::default(), Setup::wide()] {
        let run = |plan: Plan| {
            let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan, session(true)).unwrap();
            let windows = setup.data().windows;
            trainer.step(&windows[0]).unwrap();
            let mut record = Record::new();
            for x in &windows {
                let loss = trainer.net.forward_t(x, false).unwrap().sqr().unwrap().mean_all().unwrap();
                record.extend(trainer.descend(&loss, None).unwrap());
            }
            record.extend(trainer.variables());
            record
        };
        let plain = run(Plan::new());
        let mut plans = vec![setup.plan(Keep::Recompute), setup.split(), setup.plan(Keep::TimeChunks(2))];
        plans.push("pieces: gc\npieces.0..1: tcgc:3".parse().unwrap());
        if setup.width > 32 {
            plans.push(setup.plan(Keep::ChannelChunks(2)));
        }
        for plan in plans {
            assert_same_bits(&run(plan.clone()), &plain, plan);
        }
    }
}

/// The norms take their running statistics, and all else trains, dropout and carried states too.
#[test]
fn a_training_with_frozen_norms_has_the_same_bits_under_every_plan() {
    for setup in [Setup::default(), Setup::wide()] {
        let run = |plan: Plan, freeze: bool| {
            let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan, session(true)).unwrap();
            let windows = setup.data().windows;
            trainer.step(&windows[0]).unwrap();
            let running = |record: Record| -> Record {
                record.into_iter().filter(|(name, _)| name.contains("running_")).collect()
            };
            let before = running(trainer.variables());
            assert!(!before.is_empty());
            let mut record = Record::new();
            for x in &windows {
                let frozen = freeze.then(|| trainer.net.session().freeze_norms());
                let loss = trainer.loss(x).unwrap();
                // The backward is that of its forward.
                drop(frozen);
                record.extend(trainer.descend(&loss, None).unwrap());
            }
            assert_eq!(running(trainer.variables()) == before, freeze);
            record.extend(trainer.variables());
            (record, trainer.net.session().notes())
        };
        let (plain, notes) = run(Plan::new(), true);
        assert!(notes.is_empty());
        assert!(!differing(&run(Plan::new(), false).0, &plain).is_empty());
        for plan in [
            setup.plan(Keep::Recompute),
            setup.split(),
            setup.plan(Keep::TimeChunks(2)),
            setup.plan(Keep::TimeChunks(3)),
            "pieces: gc\npieces.0..1: tcgc:3".parse().unwrap(),
        ] {
            assert_same_bits(&run(plan.clone(), true).0, &plain, plan);
        }
        if setup.width > 32 {
            let (chunked, notes) = run(setup.plan(Keep::ChannelChunks(2)), true);
            assert_same_bits(&chunked, &plain, "channel chunks");
            assert!(notes[0].contains("recomputed as a whole while norms are frozen"), "{notes:?}");
        }
    }
}
