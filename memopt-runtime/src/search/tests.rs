//! The search on small models, against brute force.

use super::budget::{ways, Choice};
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
        let choice = Choice::of_all(&options, &costs);
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
            let found = choice.fastest_within(&short, limit).unwrap();
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
        assert!(choice.fastest_within(&short, least - 1).is_none());
        let smallest = choice.smallest_peak(&short);
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

#[test]
fn what_the_options_name_must_be_there() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let refused = |options: Options, word: &str| {
        let error = optimize(net.clone(), &spikes(), options.clone()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        if options.memory_budget.is_none() {
            return;
        }
        assert!(front(&net, &spikes(), &options, 4).is_err());
        assert!(max_batch(&net, &spikes(), &options, 1_000_000).is_err());
    };
    for options in [Options::profile(Profile::Safe), Options::memory_budget(1_000_000)] {
        refused(options.clone().compressor("middle", Compressor::Bit), "middle");
        refused(options.clone().compressor("first", Compressor::Named("bti".into())), "bti");
        refused(options.clone().targets(Targets::at("middle")), "middle");
        refused(options.clone().targets(Targets::at("left").and_at("left.0")), "left.0");
        refused(options.targets(Targets::at("left.0..1").and_at("left.1")), "overlap");
    }
}

#[test]
fn samples_are_of_one_shape() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let half = spikes().narrow(0, 0, 2).unwrap();
    let error = optimize(net.clone(), &[spikes(), half][..], Options::default()).unwrap_err().to_string();
    assert!(error.contains("sample 2 is [2, 2, 2, 16, 16]"), "{error}");
    let double = spikes().to_dtype(DType::F64).unwrap();
    assert!(optimize(net, &[spikes(), double][..], Options::default()).is_err());
}

#[test]
fn under_a_budget_segments_are_targets_or_inside_of_them() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let targets = || Targets::at("left").and_at("last.0..1");
    let options = Options::default().targets(targets());
    let points = front(&net, &spikes(), &options, 12).unwrap();
    let free = front(&net, &spikes(), &Options::default(), 12).unwrap();
    assert!(points.len() > 1 && free.last().unwrap().peak < points.last().unwrap().peak);
    for point in &points {
        for (key, _) in point.plan.segments() {
            let is_inside = key == "left" || key.starts_with("left.");
            assert!(is_inside || ["last.0", "last.1", "last.0..1"].contains(&key), "{key}");
        }
    }
    let least = points.last().unwrap().peak;
    let resident = optimize(net.clone(), &spikes(), Options::default()).unwrap().summary().resident;
    let options = Options::memory_budget(least + resident.before_step()).targets(targets());
    let found = optimize(net, &spikes(), options).unwrap();
    assert!(found.summary().gc_selection_explanation.contains("targets"));
    assert!(found.summary().predicted_peak.unwrap() <= least);
}

#[test]
fn measured_costs_leave_nothing_behind_and_scale_chunks_too() {
    let (variables, vb) = variables();
    let net = Net::new(&vb, true);
    let statistics = |name: &str| -> Vec<f32> {
        let data = variables.data().lock().unwrap();
        data.get(name).unwrap().to_vec1().unwrap()
    };
    let before = statistics("first.bn.running_mean");
    let options = Options::profile(Profile::Exhaustive).targets(Targets::at("first").and_at("last"));
    let found = optimize(net.clone(), &spikes(), options.measure_costs(true)).unwrap();
    assert_eq!(found.summary().options["costs"], "measured");
    assert_eq!(statistics("first.bn.running_mean"), before);
    assert_eq!(found.session().calls(), 0);

    let mut slow = traced(&net);
    let costs = CostTable::default();
    let of = |traced: &Traced, plan: &str| predict(traced, &plan.parse().unwrap(), &costs);
    let table: Vec<Prediction> = ["", "first: tcgc:2", "first: ccgc:2"].map(|plan| of(&slow, plan)).into();
    super::measure::set_paces(&mut slow, &costs, Some(&Slow)).unwrap();
    let measured = ["", "first: tcgc:2", "first: ccgc:2"].map(|plan| of(&slow, plan));
    for (table, measured) in table.iter().zip(&measured) {
        assert_eq!(table.peak, measured.peak);
        assert!(measured.seconds > 1., "{}", measured.seconds);
    }
    assert!(measured[1].seconds > measured[0].seconds && measured[2].seconds > measured[0].seconds);
}

/// A group with a process that needs a second for each layer.
#[derive(Debug)]
struct Slow;

impl Agreement for Slow {
    fn largest(&self, values: &[u64]) -> Result<Vec<u64>> {
        assert!(!values.is_empty() && values.iter().all(|&nanoseconds| nanoseconds > 0));
        Ok(vec![1_000_000_000; values.len()])
    }

    fn of_first(&self, text: &str) -> Result<String> {
        Ok(text.to_owned())
    }
}

#[test]
fn workspaces_of_more_threads_take_more() {
    let (_variables, vb) = variables();
    // Enough work for many threads.
    let net = vec![block([2, 32], vb.pp("a")), block([32, 32], vb.pp("b"))];
    let x = Tensor::ones((4, 8, 2, 24, 24), DType::F32, &Device::Cpu).unwrap();
    let peak = |threads: usize| {
        let options =
            Options::profile(Profile::Safe).targets(Targets::at("1")).threads(threads).verify(false);
        optimize(net.clone(), &x, options).unwrap().summary().predicted_peak.unwrap()
    };
    assert!(peak(16) > peak(1), "{} of {}", peak(16), peak(1));
}

/// Spikes summed up over the steps: `[N, C, H, W]`.
#[derive(Debug, Clone)]
struct Headed(Net);

impl Parameters for Headed {
    fn visit_parameters(&self, visitor: &mut Visitor<'_>) {
        self.0.visit_parameters(visitor);
    }

    fn detached(&self) -> Self {
        Headed(self.0.detached())
    }
}

impl Checkpointable for Headed {
    fn forward(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let spikes = self.0.forward(x, context)?.into_dense("spikes")?;
        Ok((&spikes.sum(0)?).into())
    }

    fn composition(&self) -> Option<Composition> {
        self.0.composition()
    }
}

#[test]
fn a_head_without_time_steps_has_the_same_batch() {
    let (_variables, vb) = variables();
    let net = Net::new(&vb, true);
    let batch = |net: &Net| max_batch(net, &spikes(), &Options::default(), 2_000_000).unwrap().unwrap().0;
    let headed =
        max_batch(&Headed(net.clone()), &spikes(), &Options::default(), 2_000_000).unwrap().unwrap().0;
    // Its output is smaller; taken for the batch, its channels would make four times as much.
    assert!((batch(&net)..=batch(&net) * 3 / 2).contains(&headed), "{headed} for {}", batch(&net));
}

#[test]
fn fallbacks_are_reported_in_the_step_of_the_search_and_in_later_ones() {
    let (_variables, vb) = variables();
    // A path that no other test's segments have.
    let net = vec![(block([2, 4], vb.pp("first")), block([4, 4], vb.pp("second")))];
    let targets = || Targets::at("0.0..1");
    let options = || Options::profile(Profile::Safe).targets(targets());
    let counts = (spikes() * 0.5).unwrap();
    let found = optimize(net.clone(), &counts, options().compressor("0.0..1", Compressor::Bit)).unwrap();
    let only = |count: u64| std::collections::BTreeMap::from([("0.0..1".to_owned(), count)]);
    assert_eq!(found.summary().fallbacks, only(1));
    assert!(found.summary().notes.iter().any(|note| note.contains("0.0..1 (1)")));
    assert!(found.fallbacks().is_empty());
    found.run(spikes(), true).unwrap();
    assert!(found.fallbacks().is_empty());
    found.run(&counts, true).unwrap();
    assert_eq!(found.fallbacks(), only(1));
}
