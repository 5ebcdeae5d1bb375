//! Plans that do not fit the model.

use super::nets::{Kind, Setup};
use super::support::*;
use memopt::module::Session;
use memopt::plan::{Keep, Plan};
use memopt::Error;

#[test]
fn neurons_that_share_a_weight_over_channels_refuse_channel_chunks() {
    let setup = Setup::of([Kind::Plif]);
    let error = setup.train(setup.plan(Keep::ChannelChunks(2)), Session::new(0)).unwrap_err();
    assert!(
        matches!(error.root(), Error::NotChannelChunkable { what, .. } if what.contains("neuron")),
        "{error}"
    );
}

#[test]
fn a_plan_for_another_model_is_refused() {
    let setup = Setup::default();
    let plan = Plan::new().with("pieces.9", Keep::Recompute);
    let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan, Session::new(0));
    let error = trainer.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("pieces.9") && error.contains("pieces.0.proj.conv"), "{error}");
}
