//! Predicted against counted bytes of a step. One test, since the counters are the process's.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarMap;
use common::Values;
use memopt::checkpoint::{plan_for, Planned, Targets};
use memopt::memory::{CountingAllocator, Scope, Timeline};
use memopt::models::{CifarDvsVgg, ResidualNet, SewBlock, VggBlock};
use memopt::module::Session;
use memopt::nn::init::seeded;
use memopt::plan::{Compressor, Keep, Plan};
use memopt::search::{predict_plan_with, CostTable, Prediction, Profile};
use memopt::{optimize, search::Options, Checkpointable};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CPU: &Device = &Device::Cpu;

/// What a step holds after forward, and its peak.
fn measured<M: Checkpointable>(net: &Planned<M>, x: &Tensor) -> (usize, usize) {
    let before = memopt::memory::live().unwrap();
    let scope = Scope::enter("step").unwrap();
    let y = net.run(x, true).unwrap().into_dense("logits").unwrap();
    let held = memopt::memory::live().unwrap() - before;
    let gradients = y.mean_all().unwrap().backward().unwrap();
    drop((gradients, y));
    (held, scope.finish().peak_above_start())
}

/// By how much the prediction is off.
fn error<M: Checkpointable + Clone>(name: &str, net: &M, plan: &Plan, x: &Tensor) -> f64 {
    let costs = CostTable::default().with_threads(1);
    let Prediction { peak, held, at_peak, marks, .. } = predict_plan_with(net, x, plan, &costs).unwrap();
    // Checksums, which builds with debug assertions compute, need copies.
    let net = Planned::new(net.clone(), plan.clone(), Session::new(0)).unwrap().verify(false);
    measured(&net, x);
    let (really_held, really) = measured(&net, x);
    let off = |predicted: usize, real: usize| predicted as f64 / real as f64 - 1.;
    println!(
        "{name:<34} peak {:>7.2} MB, predicted {:>7.2} ({:+.1} %, at {at_peak}); held {:>7.2}, predicted {:>7.2} ({:+.1} %)",
        really as f64 / 1e6,
        peak as f64 / 1e6,
        100. * off(peak, really),
        really_held as f64 / 1e6,
        held as f64 / 1e6,
        100. * off(held, really_held),
    );
    if std::env::var("MEMOPT_PREDICTION_CURVES").is_ok_and(|wanted| name.contains(&wanted)) {
        let timeline = Timeline::start().unwrap();
        measured(&net, x);
        let curve = timeline.finish();
        for mark in curve.marks() {
            let predicted = marks.iter().find(|predicted| predicted.name == mark.name);
            println!(
                "    {:<28} live {:>7.2} peak {:>7.2}; predicted {}",
                mark.name,
                mark.live as f64 / 1e6,
                mark.peak_since_previous as f64 / 1e6,
                predicted.map_or_else(String::new, |mark| format!(
                    "{:>7.2} {:>7.2}",
                    mark.live as f64 / 1e6,
                    mark.peak as f64 / 1e6
                ))
            );
        }
    }
    off(peak, really).abs()
}

/// A plan that keeps each target in some way.
fn random_plan(targets: &[String], inside: &[&str], seed: &mut u64) -> Plan {
    let mut next = |n: u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % n
    };
    targets.iter().fold(Plan::new(), |plan, path| match next(6) {
        0 => plan,
        1 => inside.iter().fold(plan, |plan, part| plan.with(format!("{path}.{part}"), Keep::Recompute)),
        2 if inside.len() == 2 => plan.with(path, Keep::TimeChunks(2)),
        3 if inside.len() == 2 => plan.with(path, Keep::ChannelChunks(2 + next(4) as usize)),
        _ => plan.with(path, Keep::Recompute),
    })
}

fn check<M: Checkpointable + Clone>(
    model: &str,
    net: &M,
    x: &Tensor,
    targets: &Targets,
    inside: &[&str],
) -> f64 {
    let mut worst = 0f64;
    // To look at some of them.
    let only = std::env::var("MEMOPT_PREDICTION_ONLY").ok();
    let mut see = |name: &str, plan: &Plan| {
        if only.as_ref().is_some_and(|only| !format!("{model}: {name}").contains(only)) {
            return;
        }
        worst = worst.max(error(&format!("{model}: {name}"), net, plan, x));
    };
    see("plain", &Plan::new());
    let all = |keep: Keep| plan_for(net, targets, keep).unwrap();
    see("gc", &all(Keep::Recompute));
    see("gc as it is", &plan_for(net, targets, (Keep::Recompute, Compressor::Null)).unwrap());
    if let Ok(plan) = plan_for(net, targets, Keep::TimeChunks(2)) {
        see("tcgc:2", &plan);
    }
    for profile in Profile::ALL {
        let found = optimize(net.clone(), x, Options::profile(*profile).verify(false)).unwrap();
        see(profile.as_str(), found.plan());
    }
    let paths: Vec<String> = all(Keep::Recompute).segments().map(|(path, _)| path.to_owned()).collect();
    let mut seed = 1;
    for index in 0..10 {
        see(&format!("random {index}"), &random_plan(&paths, inside, &mut seed));
    }
    worst
}

#[test]
fn peaks_are_predicted_within_five_percent() {
    // Whether two threads work at once, each in its workspace, depends on what else the machine does.
    std::env::set_var("RAYON_NUM_THREADS", "1");
    let batches: Vec<usize> = match std::env::var("MEMOPT_PREDICTION_BATCHES") {
        Ok(batches) => batches.split(',').map(|n| n.parse().unwrap()).collect(),
        Err(_) => vec![1, 3],
    };
    let mut worst = 0f64;
    for batch in batches {
        let vgg = CifarDvsVgg::new(48, seeded(&VarMap::new(), 0, DType::F32, CPU)).unwrap();
        let x = Values::new(1).spikes(&[batch, 4, 2, 48, 48], 0.3, DType::F32).unwrap();
        let targets = Targets::of::<VggBlock>();
        worst = worst.max(check(&format!("vgg {batch}"), &vgg, &x, &targets, &["proj_bn", "neuron"]));

        let vb = seeded(&VarMap::new(), 0, DType::F32, CPU);
        let residual = ResidualNet::new(2, &[64, 128], 2, 10, vb).unwrap();
        let x = Values::new(1).spikes(&[4, batch, 2, 32, 32], 0.3, DType::F32).unwrap();
        let targets = Targets::of::<SewBlock>();
        worst = worst.max(check(
            &format!("residual {batch}"),
            &residual,
            &x,
            &targets,
            &["first", "second", "shortcut"],
        ));
    }
    assert!(worst <= 0.05, "off by {:.1} %", 100. * worst);
}
