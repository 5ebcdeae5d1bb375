//! Plans that do not fit the model.

use super::nets::{Kind, Setup};
use super::support::*;
use candle_core::DType;
use candle_nn::VarBuilder;
use memopt::module::Session;
use memopt::nn::Linear;
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

#[test]
fn a_weight_that_is_computed_from_variables_is_refused() {
    for plan in ["body: gc", "body: tcgc:2"] {
        let build = |vb: VarBuilder| {
            let weight = vb.get((3, 4), "w")?.affine(2., 0.)?;
            Ok(Around { body: Linear::from_tensors(weight, None) })
        };
        let data = Data::new(1, &[4, 2, 4], DType::F32, 1);
        let error = train(build, plan.parse().unwrap(), session(false), &data).unwrap_err();
        assert!(
            matches!(error.root(), Error::CapturedActivation { segment, .. } if segment == "body"),
            "{error}"
        );
    }
}
