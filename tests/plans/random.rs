//! Random networks under random plans.

use super::nets::{Kind, Setup};
use super::support::*;
use memopt::module::Session;
use memopt::plan::{Keep, Plan};
use proptest::prelude::*;

fn keep() -> impl Strategy<Value = Option<Keep>> {
    prop_oneof![
        Just(None),
        Just(Some(Keep::Recompute)),
        (1usize..5).prop_map(|chunks| Some(Keep::TimeChunks(chunks)))
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_networks_under_random_plans(
        kinds in prop::collection::vec(0..5usize, 1..4),
        steps in 1usize..5,
        batch in 1usize..3,
        seed in 0u64..1000,
        keeps in prop::collection::vec(keep(), 8),
    ) {
        let all = [Kind::Lif, Kind::Plif, Kind::Residual, Kind::ResidualProjected, Kind::Dropout];
        let kinds: Vec<Kind> = kinds.into_iter().map(|k| all[k]).collect();
        let setup = Setup { steps, batch, seed, ..Setup::of(kinds) };
        let plain = setup.train(Plan::new(), Session::new(seed)).unwrap();
        let plan = setup.blocks().into_iter().zip(keeps).fold(Plan::new(), |plan, ((path, _), keep)| match keep {
            Some(keep) => plan.with(path, keep),
            None => plan,
        });
        let ours = setup.train(plan.clone(), Session::new(seed)).unwrap();
        prop_assert_eq!(differing(&ours, &plain), Vec::<String>::new(), "{}", plan);
    }
}
