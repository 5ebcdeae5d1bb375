//! Running statistics of norms in segments.

use super::nets::Setup;
use super::support::*;
use memopt::plan::{Keep, Plan};

#[test]
fn they_move_once_a_forward_whether_or_not_a_backward_follows() {
    for setup in [Setup::default(), Setup { width: 3, ..Setup::wide() }] {
        let run = |plan: Plan, is_trained: bool| {
            let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan, session(false)).unwrap();
            let before = trainer.variables();
            for x in setup.data().windows {
                let loss = trainer.loss(&x).unwrap();
                if is_trained {
                    loss.backward().unwrap();
                }
            }
            (before, trainer.variables())
        };
        let (before, plain) = run(Plan::new(), false);
        let differ = before.iter().zip(&plain).filter(|(before, after)| before != after);
        let moved: Vec<&str> = differ.map(|((name, _), _)| name.as_str()).collect();
        assert!(moved.len() >= 4 && moved.iter().all(|name| name.contains("running")), "{moved:?}");
        let keep = if setup.kinds.len() == 2 { Keep::ChannelChunks(2) } else { Keep::TimeChunks(3) };
        let nested = setup.split().with("pieces", Keep::Recompute);
        for plan in [Plan::new(), setup.plan(Keep::Recompute), setup.split(), nested, setup.plan(keep)] {
            for is_trained in [false, true] {
                let (_, ours) = run(plan.clone(), is_trained);
                assert_same_bits(&ours, &plain, format!("{is_trained}, under\n{plan}"));
            }
        }
    }
}
