//! The search on small models, against brute force.

use super::budget::{fastest_within, smallest_peak, ways};
use super::cost::CostTable;
use super::locate::{found, key_of, locate};
use super::options::Options;
use super::outline::{Body, Node};
use super::simulate::predict;
use super::trace::{trace, Traced};
use super::*;
use crate::checkpoint::{Planned, Targets};
use crate::dist::{agreement, Communicator, ThreadRank, Threads};
use crate::module::{Checkpointable, Composition, Context, JoinOp, Session, Signal, Step};
use crate::nn::{init::seeded, BatchNorm, BatchNormConfig, Conv2d, Conv2dConfig, Lif, Linear};
use crate::parameters::{Parameters, Visitor};
use crate::plan::{Compressor, Plan, Segment};
use crate::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use std::sync::Arc;

type Block = (Conv2d, BatchNorm, Lif);

fn block(channels: [usize; 2], vb: VarBuilder<'_>) -> Block {
    let config = Conv2dConfig::default().padding(1).bias(false);
    let conv = Conv2d::new(channels[0], channels[1], 3, config, vb.pp("conv")).unwrap();
    let bn = BatchNorm::new(channels[1], BatchNormConfig::default(), vb.pp("bn")).unwrap();
    (conv, bn, Lif::default())
}

/// A block, then two branches over its spikes, added up, then another block.
#[derive(Debug, Clone)]
struct Net {
    first: Block,
    left: Block,
    right: Option<Block>,
    last: Block,
}

impl Net {
    fn new(vb: &VarBuilder<'_>, has_right: bool) -> Self {
        Net {
            first: block([2, 4], vb.pp("first")),
            left: block([4, 4], vb.pp("left")),
            right: has_right.then(|| block([4, 4], vb.pp("right"))),
            last: block([4, 8], vb.pp("last")),
        }
    }
}

impl Parameters for Net {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        visitor.field("first", &self.first);
        visitor.field("left", &self.left);
        visitor.field("right", &self.right);
        visitor.field("last", &self.last);
    }

    fn detached(&self) -> Self {
        Net {
            first: self.first.detached(),
            left: self.left.detached(),
            right: self.right.detached(),
            last: self.last.detached(),
        }
    }
}

impl Checkpointable for Net {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        self.composition().unwrap_or_default().run(x, context)
    }

    fn composition(&self) -> Option<Composition> {
        let branches = [
            Composition::new().part("left", &self.left),
            match &self.right {
                Some(right) => Composition::new().part("right", right),
                None => Composition::new(),
            },
        ];
        let composition = Composition::new().part("first", &self.first).join(JoinOp::Add, branches);
        Some(composition.part("last", &self.last))
    }
}

fn variables() -> (VarMap, VarBuilder<'static>) {
    let variables = VarMap::new();
    let vb = seeded(&variables, 0, DType::F32, &Device::Cpu);
    (variables, vb)
}

fn spikes() -> Tensor {
    let values: Vec<f32> = (0..4 * 2 * 2 * 16 * 16).map(|i| f32::from(i * 7919 % 10 < 3)).collect();
    Tensor::from_vec(values, (4, 2, 2, 16, 16), &Device::Cpu).unwrap()
}

/// All plans that a budget chooses from.
fn all_plans(nodes: &[Node], parent: &str) -> Vec<Plan> {
    let merged =
        |a: &Plan, b: &Plan| b.segments().fold(a.clone(), |plan, (key, s)| plan.with(key, s.clone()));
    let times = |before: &[Plan], on: &[Plan]| -> Vec<Plan> {
        before.iter().flat_map(|a| on.iter().map(move |b| merged(a, b))).collect()
    };
    let mut at: Vec<Vec<Plan>> = vec![Vec::new(); nodes.len() + 1];
    at[0] = vec![Plan::new()];
    for index in 0..nodes.len() {
        let before = at[index].clone();
        let on = match &nodes[index].body {
            Body::Layer { .. } => vec![Plan::new()],
            Body::Chain(inside) => all_plans(inside, &nodes[index].path),
            Body::Join { branches, .. } => branches
                .iter()
                .map(|branch| all_plans(branch, &nodes[index].path))
                .reduce(|a, b| times(&a, &b))
                .unwrap_or_default(),
        };
        at[index + 1].extend(times(&before, &on));
        for end in index + 1..=nodes.len().min(index + 4) {
            let run = &nodes[index..end];
            let Some(key) = key_of(run) else { continue };
            let segment = |keep| Segment { keep, compressor: found(&run[0]) };
            let on: Vec<Plan> =
                ways(run).into_iter().map(|keep| Plan::new().with(key.clone(), segment(keep))).collect();
            at[end].extend(times(&before, &on));
        }
    }
    let _ = parent;
    at.pop().unwrap_or_default()
}

fn traced(net: &impl Checkpointable) -> Traced {
    trace(net, &spikes().into(), 2).unwrap()
}

#[test]
fn a_budget_gets_the_fastest_of_all_plans_that_fit() {
    for has_right in [false, true] {
        let (_variables, vb) = variables();
        // Two parts each, so that all plans can be tried.
        let net = Net::new(&vb, has_right);
        let traced = traced(&net);
        let (options, costs) = (Options::default(), CostTable::default());
        let plans = all_plans(&traced.nodes[..2], "");
        let short = Traced {
            nodes: traced.nodes[..2].to_vec(),
            output: traced.nodes[1].output.clone(),
            ..traced.clone()
        };
        let mut all: Vec<(usize, f64, &Plan)> = plans
            .iter()
            .map(|plan| {
                let prediction = predict(&short, plan, &costs);
                (prediction.peak, prediction.seconds, plan)
            })
            .collect();
        assert!(all.len() > 500, "{} plans", all.len());
        all.sort_by_key(|plan| plan.0);
        let (least, most) = (all[0].0, all[all.len() - 1].0);
        for step in 0..40 {
            let limit = least + (most - least) * step / 39;
            let best =
                all.iter().filter(|plan| plan.0 <= limit).map(|plan| plan.1).fold(f64::INFINITY, f64::min);
            let found = fastest_within(&short, &options, &costs, limit).unwrap();
            let prediction = predict(&short, &found, &costs);
            assert!(prediction.peak <= limit, "{} of {limit} by\n{found}", prediction.peak);
            assert!(
                prediction.seconds <= best * (1. + 1e-9),
                "limit {limit}: {} by\n{found}but {best} can be had by\n{}",
                prediction.seconds,
                all.iter()
                    .find(|plan| plan.0 <= limit && plan.1 == best)
                    .map(|p| p.2.to_string())
                    .unwrap_or_default()
            );
        }
        assert!(fastest_within(&short, &options, &costs, least - 1).is_none());
        let smallest = smallest_peak(&short, &options, &costs, most);
        assert!(smallest >= least && smallest <= least + most / 500 + 1, "{smallest} for {least}");
    }
}

#[test]
fn every_level_takes_no_more_than_the_one_before() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, false);
    let targets = Targets::at("first").and_at("left").and_at("last");
    let mut before = usize::MAX;
    for &level in Level::ALL {
        let options = Options::default().level(level).targets(targets.clone());
        let found = optimize(net.clone(), &spikes(), options).unwrap();
        let summary = found.summary();
        let peak = summary.predicted_peak.unwrap();
        // On a network as small as this, segments alone may take more than they save.
        assert!(level <= Level::One || peak <= before, "level {level}: {peak} after {before}");
        before = peak;
        assert_eq!(summary.applied_level, Some(level));
        assert_eq!(summary.targets, 3);
        assert_eq!(summary.plan, *found.plan());
    }
}

#[test]
fn a_search_leaves_nothing_behind_also_if_it_fails() {
    let (variables, vb) = variables();
    let net = Net::new(&vb, true);
    let bits = || -> Vec<Vec<u32>> {
        let data = variables.data().lock().unwrap();
        let mut named: Vec<_> = data.iter().map(|(name, v)| (name.clone(), v.clone())).collect();
        named.sort_by(|a, b| a.0.cmp(&b.0));
        let values = |v: &candle_core::Var| v.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        named.iter().map(|(_, v)| values(v).iter().map(|x| x.to_bits()).collect()).collect()
    };
    let before = bits();
    let options = || Options::profile(Profile::Exhaustive).targets(Targets::at("first").and_at("last"));
    let found = optimize(net.clone(), &spikes(), options()).unwrap();
    assert_eq!(found.session().calls(), 0);
    assert_eq!(bits(), before);
    // The third block has other channels.
    let broken = Net { last: block([5, 8], vb.pp("broken")), ..net };
    let before = bits();
    assert!(optimize(broken, &spikes(), options()).is_err());
    assert_eq!(bits(), before);
}

#[test]
fn the_same_plan_is_found_on_every_run() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let find = |options: Options| optimize(net.clone(), &spikes(), options).unwrap().plan().to_string();
    let exhaustive = || Options::profile(Profile::Exhaustive).targets(Targets::at("first").and_at("left"));
    assert_eq!(find(exhaustive()), find(exhaustive()));
    assert_eq!(find(exhaustive().verify(false)), find(exhaustive()));
}

#[test]
fn ranks_of_a_group_get_the_plan_of_the_first() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    // Left to itself, each rank finds another plan.
    let target = |rank: usize| Targets::at(["first", "left", "right"][rank]);
    let alone = |rank| Options::profile(Profile::Safe).targets(target(rank)).verify(false);
    let find = |options| optimize(net.clone(), &spikes(), options).unwrap().plan().to_string();
    let own: Vec<String> = (0..3).map(|rank| find(alone(rank))).collect();
    assert!(own[0] != own[1] && own[1] != own[2], "{own:?}");
    let together: Vec<String> = std::thread::scope(|scope| {
        let run = |group: ThreadRank| {
            let options = alone(group.rank());
            find(options.agreement(Arc::new(agreement(group))))
        };
        let threads: Vec<_> =
            Threads::group(3).into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, vec![own[0].clone(); 3]);
}

#[test]
fn a_budget_that_nothing_fits_names_the_smallest_peak() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let error = optimize(net.clone(), &spikes(), Options::memory_budget(1000)).unwrap_err();
    let smallest = if let crate::Error::Budget { smallest, .. } = error { smallest } else { 0 };
    assert!(smallest > 0, "{error}");
    let found = optimize(net, &spikes(), Options::memory_budget(smallest)).unwrap();
    assert!(found.summary().predicted_peak.unwrap() + found.summary().resident.before_step() <= smallest);
}

#[test]
fn samples_are_all_held_by_the_encoding_that_is_found() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let counts = (spikes() * 3.).unwrap();
    let options = || Options::profile(Profile::Safe).targets(Targets::at("first"));
    let of = |samples: &[Tensor]| {
        let found = optimize(net.clone(), samples, options()).unwrap();
        found.plan().get("first").and_then(|segment| segment.compressor.clone())
    };
    assert_eq!(of(&[spikes()]), Some(Compressor::Bit));
    assert_eq!(of(&[spikes(), counts.clone()]), Some(Compressor::Byte));
    assert_eq!(of(&[counts, spikes()]), Some(Compressor::Byte));
    let zeros = spikes().zeros_like().unwrap();
    assert_eq!(of(&[zeros, spikes()]), Some(Compressor::Bit), "a sample of zeros looks sparse");
}

#[test]
fn the_largest_batch_fits_and_the_next_does_not() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let options = Options::default();
    let budget = 1_000_000;
    let (batch, plan) = max_batch(&net, &spikes(), &options, budget).unwrap().unwrap();
    let of = |batch: usize| spikes().narrow(1, 0, 1).unwrap().repeat((1, batch, 1, 1, 1)).unwrap();
    let takes = |batch: usize, plan: &Plan| {
        let x = of(batch);
        let weights: usize =
            crate::parameters::parameters(&net).iter().map(|(_, t)| t.elem_count() * 4).sum();
        predict_plan(&net, &x, plan).unwrap().peak + 2 * weights + x.elem_count() * 4
    };
    assert!(batch > 1 && takes(batch, &plan) <= budget + budget / 100, "{batch}: {}", takes(batch, &plan));
    assert!(optimize(net.clone(), &of(batch + 2), Options::memory_budget(budget)).is_err());
    assert!(max_batch(&net, &spikes(), &options, 1000).unwrap().is_none());
}

#[test]
fn a_front_falls_in_bytes_and_rises_in_time() {
    let (_variables, vb) = variables();
    let points = front(&Net::new(&vb, true), &spikes(), &Options::default(), 8).unwrap();
    assert!(points.len() > 2);
    for pair in points.windows(2) {
        assert!(pair[1].peak < pair[0].peak && pair[1].seconds >= pair[0].seconds);
    }
}

#[test]
fn parts_are_found_by_their_keys() {
    let (_variables, vb) = variables();
    let traced = traced(&Net::new(&vb, true));
    for (key, count) in [("first", 1), ("left.1", 1), ("right.0..1", 2)] {
        assert_eq!(locate(&traced.nodes, "", key).map(<[Node]>::len), Some(count), "{key}");
    }
    assert!(locate(&traced.nodes, "", "middle").is_none());
    let names: Vec<Option<&str>> = traced.nodes.iter().map(Node::name).collect();
    assert_eq!(names, [Some("first"), None, Some("last")]);
    assert!(matches!(&traced.nodes[1].step, Step::Join { .. }));
}

#[test]
fn a_layer_that_says_nothing_is_named() {
    let (_variables, vb) = variables();
    let weight = vb.get((3, 4), "weight").unwrap();
    let net = vec![candle_nn::Linear::new(weight, None)];
    let x = Tensor::ones((2, 1, 4), DType::F32, &Device::Cpu).unwrap();
    let found = optimize(net, &x, Options::profile(Profile::Safe).targets(Targets::at("0"))).unwrap();
    assert!(
        found.summary().notes.iter().any(|note| note.contains("do not say")),
        "{:?}",
        found.summary().notes
    );
    let linear = Linear::new(4, 3, Default::default(), vb.pp("ours")).unwrap();
    let planned = Planned::new(vec![linear], Plan::new(), Session::new(0)).unwrap();
    assert!(planned.run(&x, true).is_ok());
}
