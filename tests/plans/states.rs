//! Neurons whose states go on from call to call.

use super::nets::{Kind, Setup};
use super::support::*;
use memopt::module::Session;
use memopt::plan::{Keep, Plan};

#[test]
fn states_carried_from_call_to_call_give_the_same_bits() {
    let setup = Setup { steps: 4, ..Setup::of([Kind::Lif, Kind::Plif]) };
    let keeps = [Keep::Recompute, Keep::TimeChunks(2), Keep::TimeChunks(3)];
    let plain = setup.check(keeps.map(|keep| setup.plan(keep)), true);
    let fresh = setup.train(Plan::new(), Session::new(7)).unwrap();
    assert!(!differing(&fresh, &plain).is_empty(), "states make no difference: the test shows nothing");
}
