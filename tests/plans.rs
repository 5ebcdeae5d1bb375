//! Every plan trains a model to the same bits: losses, gradients, running statistics, states.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, ModuleT, Result, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use common::{bits, gradient, Values};
use memopt::checkpoint::Planned;
use memopt::compress::counts;
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::nn::{
    AvgPool2d, BatchNorm2d, BatchNormConfig, Conv2d, Conv2dConfig, Dropout, Flatten, Lif, Linear,
    LinearConfig, Plif, Psn, Reset, Surrogate,
};
use memopt::plan::{Keep, Plan};
use memopt::{Checkpointable, Error};
use proptest::prelude::*;

const CPU: &Device = &Device::Cpu;
const SIDE: usize = 6;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, bn)]
struct ConvBn {
    conv: Conv2d,
    bn: BatchNorm2d,
}

#[derive(Clone, Checkpointable)]
enum Neuron {
    Lif(Lif),
    Plif(Plif),
    Psn(Psn),
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(proj, neuron)]
struct Block {
    proj: ConvBn,
    neuron: Neuron,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(add; (first, second), shortcut))]
struct Residual {
    first: Block,
    second: Block,
    shortcut: Option<Conv2d>,
}

#[derive(Clone, Checkpointable)]
#[allow(clippy::large_enum_variant)]
enum Piece {
    Block(Block),
    Residual(Residual),
    Dropout(Dropout),
}

#[derive(Clone, Checkpointable)]
#[spatial_split(pieces, pool, flatten, head)]
struct Net {
    pieces: Vec<Piece>,
    pool: AvgPool2d,
    flatten: Flatten,
    head: Linear,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Lif,
    Plif,
    Psn,
    Residual,
    ResidualProjected,
    Dropout,
}

impl Block {
    fn new(from: usize, to: usize, kind: Kind, steps: usize, vb: VarBuilder) -> memopt::Result<Self> {
        let inside = vb.pp("proj");
        let config = Conv2dConfig::default().padding(1);
        let proj = ConvBn {
            conv: Conv2d::new(from, to, 3, config, inside.pp("conv"))?,
            bn: BatchNorm2d::new(to, BatchNormConfig::default(), inside.pp("bn"))?,
        };
        let neuron = match kind {
            Kind::Plif => Neuron::Plif(
                Plif::from_builder(2., vb.pp("neuron"))?.reset(Reset::Soft).surrogate(Surrogate::atan()),
            ),
            Kind::Psn => {
                let (w, b) = Psn::initial(steps, 3, "psn", DType::F32)?;
                let (w, b) = (Var::from_tensor(&w)?, Var::from_tensor(&b)?);
                Neuron::Psn(Psn::new(w.into_inner(), b.into_inner())?)
            }
            _ => Neuron::Lif(Lif::new(1.333)?.decay_input(false).detach_reset(true).v_threshold(0.5)),
        };
        Ok(Block { proj, neuron })
    }
}

struct Setup {
    kinds: Vec<Kind>,
    /// Channels of the blocks.
    width: usize,
    steps: usize,
    seed: u64,
}

impl Setup {
    fn build(&self, variables: &VarMap) -> memopt::Result<Net> {
        let vb = seeded(variables, self.seed, DType::F32, CPU);
        let (mut pieces, mut channels) = (Vec::new(), 2);
        for (i, kind) in self.kinds.iter().enumerate() {
            let vb = vb.pp("pieces").pp(i);
            pieces.push(match kind {
                Kind::Dropout => Piece::Dropout(Dropout::new(0.3)?),
                Kind::Residual | Kind::ResidualProjected => {
                    let projected = matches!(kind, Kind::ResidualProjected);
                    let to = if projected { channels + 1 } else { channels };
                    let shortcut = match projected {
                        true => {
                            Some(Conv2d::new(channels, to, 1, Conv2dConfig::default(), vb.pp("shortcut"))?)
                        }
                        false => None,
                    };
                    let first = Block::new(channels, channels, Kind::Lif, self.steps, vb.pp("first"))?;
                    let second = Block::new(channels, to, Kind::Plif, self.steps, vb.pp("second"))?;
                    channels = to;
                    Piece::Residual(Residual { first, second, shortcut })
                }
                kind => {
                    let block = Block::new(channels, self.width, *kind, self.steps, vb)?;
                    channels = self.width;
                    Piece::Block(block)
                }
            });
        }
        let inputs = channels * (SIDE / 2) * (SIDE / 2);
        Ok(Net {
            pieces,
            pool: AvgPool2d::new(2),
            flatten: Flatten,
            head: Linear::new(inputs, 4, LinearConfig::default(), vb.pp("head"))?,
        })
    }

    /// Losses, gradients and variables (running statistics are among them) of some steps.
    fn train(&self, plan: Plan, session: Session, batch: usize) -> memopt::Result<Vec<Vec<u64>>> {
        let variables = VarMap::new();
        let net = Planned::new(self.build(&variables)?, plan, session)?;
        let mut named: Vec<(String, Var)> = variables.data().lock().unwrap().clone().into_iter().collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let mut values = Values::new(self.seed + 1);
        let mut record = Vec::new();
        for _ in 0..2 {
            let x = (values.tensor(&[self.steps, batch, 2, SIDE, SIDE], DType::F32)? * 3.)?;
            let labels = Tensor::new((0..batch as u32).map(|i| i % 4).collect::<Vec<_>>(), CPU)?;
            let loss = candle_nn::loss::cross_entropy(&net.forward_t(&x, true)?.mean(0)?, &labels)?;
            let gradients = loss.backward()?;
            record.push(bits(&loss));
            for (_, v) in &named {
                record.push(gradient(&gradients, v).map_or(vec![], |g| g.2));
                if let Some(g) = gradients.get(v) {
                    v.set(&(v.as_tensor() - (g * 0.1)?)?.detach())?;
                }
            }
        }
        record.extend(named.iter().map(|(_, v)| bits(v)));
        record.push(bits(
            &net.forward_t(&values.tensor(&[self.steps, batch, 2, SIDE, SIDE], DType::F32)?, false)?,
        ));
        Ok(record)
    }

    fn paths(&self) -> Vec<String> {
        let piece = |(i, kind): (usize, &Kind)| match kind {
            Kind::Residual | Kind::ResidualProjected => {
                vec![format!("pieces.{i}.first"), format!("pieces.{i}.second")]
            }
            Kind::Dropout => vec![format!("pieces.{i}")],
            _ => vec![format!("pieces.{i}")],
        };
        self.kinds.iter().enumerate().flat_map(piece).collect()
    }

    fn plan(&self, keep: Keep) -> Plan {
        self.paths().into_iter().fold(Plan::new(), |plan, path| plan.with(path, keep))
    }

    /// Projection and neuron in segments of their own.
    fn split(&self) -> Plan {
        let blocks = |i: usize, kind: &Kind| match kind {
            Kind::Residual | Kind::ResidualProjected => {
                vec![format!("pieces.{i}.first"), format!("pieces.{i}.second")]
            }
            Kind::Dropout => vec![],
            _ => vec![format!("pieces.{i}")],
        };
        let all = self.kinds.iter().enumerate().flat_map(|(i, kind)| blocks(i, kind));
        all.fold(Plan::new(), |plan, path| {
            plan.with(format!("{path}.proj"), Keep::Recompute).with(format!("{path}.neuron"), Keep::Recompute)
        })
    }
}

fn all_kinds() -> Setup {
    let kinds = vec![Kind::Lif, Kind::Dropout, Kind::Plif, Kind::Residual, Kind::ResidualProjected];
    Setup { kinds, width: 3, steps: 5, seed: 3 }
}

#[test]
fn marked_blocks_are_the_targets() {
    let net = all_kinds().build(&VarMap::new()).unwrap();
    let plan = memopt::checkpoint::plan_for_targets(&net, Keep::TimeChunks(2));
    let paths: Vec<&str> = plan.segments().map(|(path, _)| path).collect();
    let expected =
        ["pieces.0", "pieces.2", "pieces.3.first", "pieces.3.second", "pieces.4.first", "pieces.4.second"];
    assert_eq!(paths, expected);
}

fn differing(a: &[Vec<u64>], b: &[Vec<u64>]) -> Vec<usize> {
    assert_eq!(a.len(), b.len());
    (0..a.len()).filter(|&i| a[i] != b[i]).collect()
}

#[test]
fn plans_of_every_kind_give_the_same_bits() {
    let setup = all_kinds();
    let plain = setup.train(Plan::new(), Session::new(7), 2).unwrap();
    assert!(plain.iter().filter(|values| values.iter().any(|bits| *bits != 0)).count() > 40);
    let mut plans = vec![("gc".to_owned(), setup.plan(Keep::Recompute)), ("split".to_owned(), setup.split())];
    for chunks in [1, 2, 3, 5, 9] {
        plans.push((format!("tcgc:{chunks}"), setup.plan(Keep::TimeChunks(chunks))));
    }
    plans.push(("whole".into(), Plan::new().with("pieces", Keep::Recompute)));
    plans.push(("range".into(), Plan::new().with("pieces.0..2", Keep::Recompute)));
    plans.push(("chunked range".into(), Plan::new().with("pieces.0..2", Keep::TimeChunks(2))));
    plans.push((
        "nested".into(),
        setup.plan(Keep::Recompute).with("pieces", Keep::Recompute).with("pieces.0.proj", Keep::Recompute),
    ));
    for (name, plan) in plans {
        let ours = setup.train(plan, Session::new(7), 2).unwrap();
        assert_eq!(differing(&ours, &plain), Vec::<usize>::new(), "{name}");
    }
    // Another seed of the session: the dropout differs, so the comparison can fail.
    let other = setup.train(Plan::new(), Session::new(8), 2).unwrap();
    assert!(!differing(&other, &plain).is_empty());
}

#[test]
fn states_carried_from_call_to_call_give_the_same_bits() {
    let setup = Setup { kinds: vec![Kind::Lif, Kind::Plif], width: 3, steps: 4, seed: 5 };
    let session = || Session::new(0).carry_states();
    let plain = setup.train(Plan::new(), session(), 2).unwrap();
    for keep in [Keep::Recompute, Keep::TimeChunks(2), Keep::TimeChunks(3)] {
        let ours = setup.train(setup.plan(keep), session(), 2).unwrap();
        assert_eq!(differing(&ours, &plain), Vec::<usize>::new(), "{keep}");
    }
    let fresh = setup.train(Plan::new(), Session::new(0), 2).unwrap();
    assert!(!differing(&fresh, &plain).is_empty(), "states make no difference: the test shows nothing");
}

/// A neuron before the norm, several norms, layers without one: where the window is cut must not show.
#[derive(Clone, Checkpointable)]
#[spatial_split(lif, conv, bn, plif, conv2, bn2, lif2, flatten, head)]
struct PreActivation {
    lif: Lif,
    conv: Conv2d,
    bn: BatchNorm2d,
    plif: Plif,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    lif2: Lif,
    flatten: Flatten,
    head: Linear,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(body)]
struct Around<M> {
    body: M,
}

fn pre_activation(vb: VarBuilder) -> memopt::Result<PreActivation> {
    let conv = |name: &str| Conv2d::new(2, 2, 3, Conv2dConfig::default().padding(1), vb.pp(name));
    let bn = |name: &str| BatchNorm2d::new(2, BatchNormConfig::default(), vb.pp(name));
    Ok(PreActivation {
        lif: Lif::new(2.)?.v_threshold(0.4),
        conv: conv("conv")?,
        bn: bn("bn")?,
        plif: Plif::from_builder(2., vb.pp("plif"))?,
        conv2: conv("conv2")?,
        bn2: bn("bn2")?,
        lif2: Lif::new(2.)?.v_threshold(0.4),
        flatten: Flatten,
        head: Linear::new(2 * 16, 3, LinearConfig::default(), vb.pp("head"))?,
    })
}

/// Losses, gradients and variables of three steps, on a tracked input that repeats the same image at every step.
fn train_steps<M: Checkpointable>(
    build: impl Fn(VarBuilder) -> memopt::Result<M>,
    plan: Plan,
    session: Session,
    steps: usize,
) -> memopt::Result<Vec<Vec<u64>>> {
    let variables = VarMap::new();
    let body = build(seeded(&variables, 3, DType::F32, CPU))?;
    let net = Planned::new(Around { body }, plan, session)?;
    let mut named: Vec<(String, Var)> = variables.data().lock().unwrap().clone().into_iter().collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let input = Var::from_tensor(&(Values::new(9).tensor(&[2, 2, 4, 4], DType::F32)? * 2.)?)?;
    let mut record = Vec::new();
    for _ in 0..3 {
        let x = input.unsqueeze(0)?.broadcast_as((steps, 2, 2, 4, 4))?;
        let loss = net.forward_t(&x, true)?.sqr()?.mean_all()?;
        let gradients = loss.backward()?;
        record.push(bits(&loss));
        record.push(gradient(&gradients, &input).map_or(vec![], |g| g.2));
        for (_, v) in &named {
            record.push(gradient(&gradients, v).map_or(vec![], |g| g.2));
            if let Some(g) = gradients.get(v) {
                v.set(&(v.as_tensor() - (g * 0.1)?)?.detach())?;
            }
        }
    }
    record.extend(named.iter().map(|(_, v)| bits(v)));
    Ok(record)
}

#[test]
fn neurons_before_norms_and_several_norms_in_chunks() {
    for carry in [false, true] {
        let session = || if carry { Session::new(0).carry_states() } else { Session::new(0) };
        let trained = |plan: Plan| train_steps(pre_activation, plan, session(), 5).unwrap();
        let plain = trained(Plan::new());
        assert!(plain.iter().filter(|values| values.iter().any(|bits| *bits << 1 != 0)).count() > 30);
        for chunks in 1..=5 {
            let ours = trained(Plan::new().with("body", Keep::TimeChunks(chunks)));
            assert_eq!(differing(&ours, &plain), Vec::<usize>::new(), "tcgc:{chunks}, carried {carry}");
            for range in
                ["body.lif..bn", "body.lif..plif", "body.plif..bn2", "body.conv..lif2", "body.flatten..head"]
            {
                let ours = trained(Plan::new().with(range, Keep::TimeChunks(chunks)));
                assert_eq!(
                    differing(&ours, &plain),
                    Vec::<usize>::new(),
                    "{range} tcgc:{chunks}, carried {carry}"
                );
            }
        }
        for plan in
            ["body: gc", "body.lif..bn: gc", "body.conv2..lif2: ccgc:2", "body.lif: gc\nbody.head: gc"]
        {
            let ours = trained(plan.parse().unwrap());
            assert_eq!(differing(&ours, &plain), Vec::<usize>::new(), "{plan}, carried {carry}");
        }
    }
}

/// A method is the forward, and runs several layers of a kind at one path.
#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct Opaque {
    conv: Conv2d,
    bn: BatchNorm2d,
    #[checkpoint(skip)]
    lif: Lif,
    #[checkpoint(skip)]
    dropout: Dropout,
    conv2: Conv2d,
    bn2: BatchNorm2d,
}

impl Opaque {
    fn run(
        &self,
        x: memopt::module::Signal,
        context: &mut memopt::module::Context,
    ) -> memopt::Result<memopt::module::Signal> {
        let x = self.bn.forward(self.conv.forward(x, context)?, context)?;
        let x = self.dropout.forward(self.lif.forward(x, context)?, context)?;
        let x = self.bn2.forward(self.conv2.forward(x, context)?, context)?;
        self.dropout.forward(self.lif.forward(x, context)?, context)
    }
}

fn opaque(vb: VarBuilder) -> memopt::Result<Opaque> {
    let conv = |name: &str| Conv2d::new(2, 2, 3, Conv2dConfig::default().padding(1), vb.pp(name));
    let bn = |name: &str| BatchNorm2d::new(2, BatchNormConfig::default(), vb.pp(name));
    let (lif, dropout) = (Lif::new(2.)?.v_threshold(0.4), Dropout::new(0.4)?);
    Ok(Opaque { conv: conv("a")?, bn: bn("b")?, lif, dropout, conv2: conv("c")?, bn2: bn("d")? })
}

#[test]
fn layers_that_share_a_path_share_nothing_else() {
    for carry in [false, true] {
        let session = || if carry { Session::new(4).carry_states() } else { Session::new(4) };
        let plain = train_steps(opaque, Plan::new(), session(), 3).unwrap();
        let ours = train_steps(opaque, "body: gc".parse().unwrap(), session(), 3).unwrap();
        assert_eq!(differing(&ours, &plain), Vec::<usize>::new(), "carried {carry}");
    }
    // What a method does with the window is not known.
    let error = train_steps(opaque, "body: tcgc:2".parse().unwrap(), Session::new(4), 3).unwrap_err();
    assert!(matches!(error.root(), Error::NotTimeChunkable { .. }), "{error}");
}

#[test]
fn a_model_trained_by_itself_inside_of_a_closure_is_refused() {
    let variables = VarMap::new();
    let body = opaque(seeded(&variables, 3, DType::F32, CPU)).unwrap();
    let x = Tensor::ones((2, 1, 2, 4, 4), DType::F32, CPU).unwrap();
    let error =
        memopt::checkpoint::checkpoint(move |x| body.forward_t(&x[0], true), &[&x], "by hand").unwrap_err();
    assert!(matches!(error.root(), Error::TrainedInsideSegment { .. }), "{error}");
}

#[test]
fn evaluation_does_not_move_carried_states() {
    let run = |evaluate: bool| {
        let variables = VarMap::new();
        let body = pre_activation(seeded(&variables, 3, DType::F32, CPU)).unwrap();
        let plan = "body: gc".parse().unwrap();
        let net = Planned::new(Around { body }, plan, Session::new(0).carry_states()).unwrap();
        let x = (Values::new(1).tensor(&[3, 2, 2, 4, 4], DType::F32).unwrap() * 3.).unwrap();
        let mut record = Vec::new();
        for _ in 0..3 {
            let loss = net.forward_t(&x, true).unwrap().sqr().unwrap().mean_all().unwrap();
            if evaluate {
                // another batch size, between a forward and its backward
                net.predict(x.narrow(1, 0, 1).unwrap().contiguous().unwrap()).unwrap();
            }
            let gradients = loss.backward().unwrap();
            record.push(bits(&loss));
            let mut named: Vec<(String, Var)> =
                variables.data().lock().unwrap().clone().into_iter().collect();
            named.sort_by(|a, b| a.0.cmp(&b.0));
            for (_, v) in named {
                record.push(gradient(&gradients, &v).map_or(vec![], |g| g.2));
                record.push(bits(&v));
            }
        }
        record
    };
    assert_eq!(differing(&run(true), &run(false)), Vec::<usize>::new());
}

/// More channels than the convolution computes together, so that they really are cut.
#[test]
fn channel_chunks_give_the_same_bits() {
    let setup = Setup { kinds: vec![Kind::Lif, Kind::Lif], width: 70, steps: 3, seed: 6 };
    let trained = |plan, carry: bool| {
        let session = if carry { Session::new(0).carry_states() } else { Session::new(0) };
        setup.train(plan, session, 2).unwrap()
    };
    for carry in [false, true] {
        let plain = trained(Plan::new(), carry);
        for chunks in [1, 2, 3, 9] {
            let ours = trained(setup.plan(Keep::ChannelChunks(chunks)), carry);
            assert_eq!(differing(&ours, &plain), Vec::<usize>::new(), "ccgc:{chunks}, carried {carry}");
        }
        let mixed = Plan::new()
            .with("pieces.0", Keep::ChannelChunks(2))
            .with("pieces.1", Keep::TimeChunks(2))
            .with("pieces", Keep::Recompute);
        assert_eq!(differing(&trained(mixed, carry), &plain), Vec::<usize>::new(), "inside a segment");
    }
}

#[test]
fn neurons_that_share_a_weight_over_channels_refuse_channel_chunks() {
    let setup = Setup { kinds: vec![Kind::Plif], width: 3, steps: 2, seed: 1 };
    let error = setup.train(setup.plan(Keep::ChannelChunks(2)), Session::new(0), 1).unwrap_err();
    assert!(
        matches!(error.root(), Error::NotChannelChunkable { what, .. } if what.contains("neuron")),
        "{error}"
    );
}

#[test]
fn whole_window_parts_refuse_time_chunks() {
    let setup = Setup { kinds: vec![Kind::Psn], width: 3, steps: 4, seed: 1 };
    setup.train(setup.plan(Keep::Recompute), Session::new(0), 1).unwrap();
    let error = setup.train(setup.plan(Keep::TimeChunks(2)), Session::new(0), 1).unwrap_err();
    assert!(
        matches!(error.root(), Error::NotTimeChunkable { segment, part } if segment == "pieces.0" && part == "0.neuron"),
        "{error}"
    );
}

#[test]
fn a_plan_for_another_model_is_refused() {
    let variables = VarMap::new();
    let net = all_kinds().build(&variables).unwrap();
    let plan = Plan::new().with("pieces.9", Keep::Recompute);
    let error = Planned::new(net, plan, Session::new(0)).map(|_| ()).unwrap_err();
    assert!(
        error.to_string().contains("pieces.9") && error.to_string().contains("pieces.0.proj.conv"),
        "{error}"
    );
}

#[test]
fn inputs_of_segments_are_kept_as_bits() {
    // Deeper than the other tests' networks, so that the counts of the last path are this test's.
    let setup = Setup { kinds: vec![Kind::Lif; 7], width: 3, steps: 4, seed: 2 };
    setup.train(setup.plan(Keep::Recompute), Session::new(0), 2).unwrap();
    let of = |path: &str| counts().into_iter().find(|c| c.segment == path).unwrap();
    assert!(of("pieces.6").encodings.contains_key("bit") || of("pieces.6").encodings.contains_key("sparse"));
    assert!(of("pieces.6").kept_bytes * 16 < of("pieces.6").raw_bytes);
}

#[test]
fn evaluation_between_steps_disturbs_nothing() {
    let setup = all_kinds();
    let run = |evaluate: bool| -> Result<Vec<Vec<u64>>> {
        let variables = VarMap::new();
        let net = Planned::new(setup.build(&variables)?, setup.plan(Keep::Recompute), Session::new(1))?;
        let mut values = Values::new(4);
        let x = values.tensor(&[5, 2, 2, SIDE, SIDE], DType::F32)?;
        let mut record = Vec::new();
        for _ in 0..2 {
            record.push(bits(&net.forward_t(&x, true)?));
            if evaluate {
                let y = net.predict(&x)?.into_dense("output")?;
                assert!(!y.track_op());
                assert_eq!(bits(&y), bits(&net.forward_t(&x, false)?));
            }
        }
        Ok(record)
    };
    assert_eq!(run(true).unwrap(), run(false).unwrap());
}

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
        let setup = Setup { kinds: kinds.into_iter().map(|k| all[k]).collect(), width: 3, steps, seed };
        let plain = setup.train(Plan::new(), Session::new(seed), batch).unwrap();
        let plan = setup.paths().into_iter().zip(keeps).fold(Plan::new(), |plan, (path, keep)| match keep {
            Some(keep) => plan.with(path, keep),
            None => plan,
        });
        let ours = setup.train(plan.clone(), Session::new(seed), batch).unwrap();
        prop_assert_eq!(differing(&ours, &plain), Vec::<usize>::new(), "{}", plan);
    }
}
