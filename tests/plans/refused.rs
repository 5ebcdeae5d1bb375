//! Plans that do not fit the model.

use super::common::Values;
use super::nets::{Kind, Setup};
use super::support::*;
use candle_core::{DType, ModuleT, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use memopt::checkpoint::Planned;
use memopt::module::{Checkpointable, Composition, Context, Session, Signal};
use memopt::nn::{BatchNorm, Dropout, Lif, Linear};
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
            matches!(error.root(), Error::ComputedParameter { segment, .. } if segment == "body"),
            "{error}"
        );
    }
}

/// What cannot be run as the plan says is known before anything runs, nested or not.
#[test]
fn plans_that_cannot_be_applied_are_refused_when_they_are_made() {
    let setup = Setup::of([Kind::Lif, Kind::Psn, Kind::Residual]);
    for (plan, part) in [
        ("pieces: gc\npieces.0.neuron: ccgc:2", "convolution"),
        ("pieces.0: gc\npieces.0.proj.conv: ccgc:2", "convolution"),
        ("pieces.1: tcgc:2", "pieces.1"),
        ("pieces: gc\npieces.0..1: tcgc:2", "pieces.0..1"),
        ("pieces.2.first: tcgc:2\npieces.2.first.proj: gc", "in chunks"),
    ] {
        let plan: Plan = plan.parse().unwrap();
        let trainer = Trainer::new(|vb| setup.build(vb), setup.dtype, plan.clone(), Session::new(0));
        let error = trainer.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{plan}: {error}");
    }
}

/// Runs something else than what it says it is made of.
#[derive(Clone, memopt::Parameters)]
struct Mismatch {
    runs: Linear,
    rests: Linear,
}

impl Checkpointable for Mismatch {
    fn forward(&self, x: Signal, context: &mut Context) -> memopt::Result<Signal> {
        self.runs.forward(x, context)
    }

    fn composition(&self) -> Option<Composition> {
        Some(Composition::new().part("runs", &self.runs).part("rests", &self.rests))
    }
}

/// Two parts that cannot be told apart.
#[derive(Clone, memopt::Parameters)]
struct Namesakes(Linear);

impl Checkpointable for Namesakes {
    fn forward(&self, x: Signal, context: &mut Context) -> memopt::Result<Signal> {
        self.composition().map_or(Ok(x.clone()), |composition| composition.run(x, context))
    }

    fn composition(&self) -> Option<Composition> {
        Some(Composition::new().part("a", &self.0).part("a", &self.0))
    }
}

fn linear(vb: VarBuilder) -> memopt::Result<Linear> {
    Linear::new(4, 4, Default::default(), vb)
}

#[test]
fn a_planned_part_that_does_not_run_is_an_error() {
    let data = Data::new(1, &[4, 2, 4], DType::F32, 1);
    let build = |vb: VarBuilder| Ok(Mismatch { runs: linear(vb.pp("a"))?, rests: linear(vb.pp("b"))? });
    let error = train(build, "rests: gc".parse().unwrap(), session(false), &data).unwrap_err().to_string();
    assert!(error.contains("`rests` did not run"), "{error}");
}

#[test]
fn parts_of_one_name_are_refused() {
    let data = Data::new(1, &[4, 2, 4], DType::F32, 1);
    let build = |vb: VarBuilder| Ok(Namesakes(linear(vb)?));
    let error = train(build, Plan::new(), session(false), &data).unwrap_err().to_string();
    assert!(error.contains("called `a`"), "{error}");
}

/// `f` is refused inside of a closure.
fn assert_refused(f: impl Fn(&Tensor) -> candle_core::Result<Tensor> + Send + 'static) {
    let x = Var::from_tensor(&Values::new(1).tensor(&[3, 2, 4], DType::F32).unwrap()).unwrap();
    let error = memopt::checkpoint::checkpoint(move |x| f(&x[0]), &[&x], "closure").unwrap_err();
    assert!(matches!(error.root(), Error::TrainedInsideSegment { .. }), "{error}");
}

fn assert_layer_refused<M: Checkpointable>(layer: M, session: Session) {
    assert_refused(move |x| Ok(layer.forward(x.into(), &mut Context::training(&session))?.into_dense("")?));
}

/// What outlives a forward would move in the first pass and again in the recompute.
#[test]
fn training_inside_of_a_closure_is_refused() {
    let vb = || memopt::nn::init::seeded(&VarMap::new(), 0, DType::F32, CPU);
    let norm = || BatchNorm::new(4, Default::default(), vb()).unwrap();

    let planned = Planned::new(vec![norm()], Plan::new(), Session::new(0)).unwrap();
    assert_refused(move |x| planned.forward_t(x, true));
    let bare = Around { body: linear(vb()).unwrap() };
    assert_refused(move |x| bare.forward_t(x, true));
    assert_layer_refused(norm(), Session::new(0));
    assert_layer_refused(Dropout::new(0.5).unwrap(), Session::new(0));
    assert_layer_refused(Lif::new(2.).unwrap(), Session::new(0).carry_states());
}
