//! Parts that are not memopt's own, or not as they should be: plans must not lose or change anything of theirs silently.

use super::common::{bits, Values};
use super::support::*;
use candle_core::{DType, ModuleT, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use memopt::checkpoint::{checkpoint, checkpoint_part, is_inside_segment, Planned};
use memopt::module::{Checkpointable, Context, Session, Signal};
use memopt::nn::{BatchNorm, Conv2d, Conv2dConfig, Lif, Linear};
use memopt::parameters::{Parameters, Visitor};
use memopt::plan::{Keep, Plan};
use memopt::{Error, Result};
use std::sync::{Arc, Mutex};

fn vb() -> VarBuilder<'static> {
    memopt::nn::init::seeded(&VarMap::new(), 0, DType::F32, CPU)
}

fn window() -> Tensor {
    Values::new(1).tensor(&[4, 2, 2, 4, 4], DType::F32).unwrap()
}

fn planned<M: Checkpointable>(model: M, plan: &str) -> Planned<M> {
    Planned::new(model, plan.parse().unwrap(), Session::new(0)).unwrap()
}

/// A variable that `Parameters` does not show.
#[derive(Clone)]
struct Hidden(Var);

impl Parameters for Hidden {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        self.clone()
    }
}

impl Checkpointable for Hidden {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        Ok(x.into_dense(context.path())?.broadcast_mul(&self.0)?.into())
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

#[test]
fn a_variable_that_a_part_hides_keeps_its_gradient_or_is_an_error() {
    let conv = || Conv2d::new(2, 2, 3, Conv2dConfig::default().padding(1), vb().pp("conv")).unwrap();
    let norm = || BatchNorm::new(2, Default::default(), vb().pp("norm")).unwrap();
    for plan in ["0: gc", "0: tcgc:2", "0: ccgc:2", "0.0: gc", "0.0..1: tcgc:2"] {
        let factor = Var::new(0.5f32, CPU).unwrap();
        let model = vec![(Hidden(factor.clone()), conv(), norm(), Lif::new(2.).unwrap().v_threshold(0.2))];
        match planned(model, plan).forward_t(&window(), true) {
            Ok(y) => {
                let gradients = y.sum_all().unwrap().backward().unwrap();
                assert!(gradients.get(&factor).is_some(), "{plan}: the gradient is lost");
            }
            Err(error) => assert!(matches!(Error::from(error).root(), Error::HiddenParameter { .. })),
        }
    }
}

#[test]
fn a_norm_of_other_channels_is_refused_under_every_plan_before_anything_moves() {
    for (gives, takes) in [(4, 8), (8, 4)] {
        for affine in [true, false] {
            for plan in ["", "0: gc", "0: ccgc:2", "0: tcgc:2"] {
                let variables = VarMap::new();
                let vb = memopt::nn::init::seeded(&variables, 0, DType::F32, CPU);
                let conv = Conv2d::new(2, gives, 3, Default::default(), vb.pp("conv")).unwrap();
                let config = memopt::nn::BatchNormConfig::default().affine(affine);
                let norm = BatchNorm::new(takes, config, vb.pp("norm")).unwrap();
                let model = vec![(conv, norm, Lif::default())];
                let before: Vec<_> = sorted(&variables).iter().map(|(_, v)| bits(v)).collect();
                let plan: Plan = plan.parse().unwrap();
                let error = match Planned::new(model, plan.clone(), Session::new(0)) {
                    Ok(net) => Error::from(net.forward_t(&window(), true).unwrap_err()),
                    Err(error) => error,
                };
                let error = error.to_string();
                assert!(
                    error.contains("channels") || error.contains(&format!("[T, N, {takes}, ...]")),
                    "{plan}: {error}"
                );
                let after: Vec<_> = sorted(&variables).iter().map(|(_, v)| bits(v)).collect();
                assert_eq!(before, after);
            }
        }
    }
}

/// A layer that says what it is inside of.
#[derive(Clone)]
struct Witness(Arc<Mutex<Vec<bool>>>);

impl Parameters for Witness {
    fn visit_parameters(&self, _: &mut Visitor<'_>) {}

    fn detached(&self) -> Self {
        self.clone()
    }
}

impl Checkpointable for Witness {
    fn forward(&self, x: Signal, _: &mut Context) -> Result<Signal> {
        self.0.lock().unwrap().push(is_inside_segment());
        Ok(x)
    }

    fn is_time_chunkable(&self) -> bool {
        true
    }
}

#[test]
fn code_knows_that_it_is_inside_of_a_segment_the_first_time_and_again() {
    for plan in ["0: gc", "0: tcgc:2", "0: ccgc:1"] {
        let seen = Witness(Arc::default());
        let conv = Conv2d::new(2, 2, 3, Conv2dConfig::default().padding(1), vb().pp("conv")).unwrap();
        let norm = BatchNorm::new(2, Default::default(), vb().pp("norm")).unwrap();
        let net = planned(vec![(seen.clone(), conv, norm, Lif::default())], plan);
        net.forward_t(&window(), true).unwrap().sum_all().unwrap().backward().unwrap();
        let seen = seen.0.lock().unwrap();
        assert!(seen.len() > 1 && seen.iter().all(|inside| *inside), "{plan}: {seen:?}");
    }
}

#[test]
fn a_segment_inside_of_a_closure_does_not_hide_that_statistics_would_move_twice() {
    let norm = BatchNorm::new(2, Default::default(), vb()).unwrap();
    let x = Var::from_tensor(&window()).unwrap();
    let inside = move |x: &[Tensor]| -> candle_core::Result<Tensor> {
        let context = &mut Context::training(&Session::new(0));
        let y = checkpoint_part("norm", &norm, (&x[0]).into(), context, Keep::Recompute)?;
        Ok(y.into_dense("norm")?)
    };
    let error = checkpoint(inside, &[&x], "closure").unwrap_err();
    assert!(matches!(error.root(), Error::TrainedInsideSegment { .. }), "{error}");
}

/// A weight of its own by `Context::weight`, and a layer run by hand at the same path with a weight of the same name.
#[derive(Clone, memopt::Checkpointable)]
#[checkpoint(forward = "run")]
struct Namesakes {
    gain: Tensor,
    linear: Linear,
}

impl Namesakes {
    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let x = self.linear.forward(x, context)?;
        let (value, edge, gradient) = context.weight("weight", &self.gain).into_parts();
        let x = x.into_dense(context.path())?;
        let shape = x.shape().clone();
        let y = x.detach().broadcast_mul(&value)?.flatten_all()?.to_vec1::<f32>()?;
        let inputs = vec![memopt::autograd::Edge::to(&x), edge];
        let outputs = vec![memopt::autograd::Output::new(candle_core::CpuStorage::F32(y), &shape)];
        let x = x.detach();
        let back = move |mut dy: Vec<Option<memopt::autograd::Gradient>>| {
            let Some(dy) = dy.pop().flatten() else { return Ok(vec![None, None]) };
            let dy = dy.into_tensor();
            let mut sum = gradient.begin();
            if let candle_core::CpuStorage::F32(sum) = &mut sum {
                let of_gain =
                    (&dy * &x)?.flatten_all()?.reshape(((), sum.len()))?.sum(0)?.to_vec1::<f32>()?;
                sum.iter_mut().zip(of_gain).for_each(|(sum, of)| *sum += of);
            }
            Ok(vec![Some(dy.broadcast_mul(&value)?.into()), gradient.finish(sum)])
        };
        let y = memopt::autograd::apply("gain", inputs, outputs, back)?;
        Ok(Signal::Dense(y.into_iter().next().unwrap()))
    }
}

#[test]
fn weights_of_one_name_at_one_path_keep_their_own_gradients() {
    let build = |vb: VarBuilder| {
        let gain = vb.get_with_hints(4, "gain", candle_nn::Init::Uniform { lo: 0.5, up: 1. })?;
        let config = memopt::nn::LinearConfig::default().bias(false);
        Ok(Around { body: Namesakes { gain, linear: Linear::new(4, 4, config, vb.pp("linear"))? } })
    };
    let data = Data::new(2, &[3, 2, 4], DType::F32, 1);
    let plain = train(build, Plan::new(), session(false), &data).unwrap();
    let ours = train(build, "body: gc".parse().unwrap(), session(false), &data).unwrap();
    assert_same_bits(&ours, &plain, "gc");
}

#[test]
fn inexact_chunks_inside_of_a_segment_are_refused() {
    let norm = BatchNorm::new(2, Default::default(), vb()).unwrap();
    let plan = "0: gc\n0.0: tcgc-per-chunk:2".parse().unwrap();
    let error = Planned::new(vec![(norm, Lif::default())], plan, Session::new(0)).err().unwrap().to_string();
    assert!(error.contains("`0.0`") && error.contains("take it out"), "{error}");
}

/// A segment inside of one that could be run in place is a segment all the same.
#[test]
fn segments_inside_of_a_block_are_applied() {
    let conv = Conv2d::new(2, 2, 3, Conv2dConfig::default().padding(1), vb().pp("conv")).unwrap();
    let norm = BatchNorm::new(2, Default::default(), vb().pp("norm")).unwrap();
    let model = vec![vec![vec![((conv, norm), Lif::default())]]];
    let net = planned(model, "0.0.0: gc\n0.0.0.0: gc null");
    net.forward_t(&window(), true).unwrap().sum_all().unwrap().backward().unwrap();
    assert!(
        memopt::compress::counts().iter().any(|count| count.segment == "0.0.0.0"),
        "it was not run as a segment"
    );
}

/// A method that joins step by step, as its author says.
#[derive(Clone, memopt::Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(join(self.larger; (left, left_neuron), (right, right_neuron)))]
struct Larger {
    left: Linear,
    left_neuron: Lif,
    right: Linear,
    right_neuron: Lif,
}

impl Larger {
    fn larger(&self, branches: &[Signal], _: &mut Context) -> Result<Signal> {
        match branches {
            [Signal::Dense(left), Signal::Dense(right)] => Ok((left * 2.)?.maximum(right)?.into()),
            other => Ok(Signal::Tuple(other.to_vec())),
        }
    }
}

#[test]
fn a_method_that_joins_step_by_step_runs_in_time_chunks() {
    let build = |vb: VarBuilder| {
        let linear = |name: &str| Linear::new(4, 4, Default::default(), vb.pp(name));
        let lif = || Lif::new(2.).map(|lif| lif.v_threshold(0.2));
        let (left, right) = (linear("left")?, linear("right")?);
        Ok(Around { body: Larger { left, left_neuron: lif()?, right, right_neuron: lif()? } })
    };
    let data = Data::new(2, &[5, 2, 4], DType::F32, 1);
    for carry in [false, true] {
        let plain = train(build, Plan::new(), session(carry), &data).unwrap();
        for plan in ["body: tcgc:2", "body: tcgc:5", "body: gc"] {
            let ours = train(build, plan.parse().unwrap(), session(carry), &data).unwrap();
            assert_same_bits(&ours, &plain, plan);
        }
    }
}
