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
