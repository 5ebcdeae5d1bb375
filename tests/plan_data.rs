//! Plans as data, what they name, and what a session notes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, ModuleT, Tensor};
use candle_nn::{VarBuilder, VarMap};
use common::{bits, Values};
use memopt::checkpoint::{checkpoint_part, plan_for, Planned, SavedPlan, Targets};
use memopt::compress::{Bit, Encoding, SpikeCompressor};
use memopt::module::{Context, Session};
use memopt::nn::init::seeded;
use memopt::nn::{BatchNorm2d, Conv2d, Conv2dConfig, Dropout, Lif};
use memopt::plan::{Compressor, Keep, Plan};
use memopt::Checkpointable;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const CPU: &Device = &Device::Cpu;

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(conv, bn, neuron)]
struct Block {
    conv: Conv2d,
    bn: BatchNorm2d,
    neuron: Lif,
}

#[derive(Clone, Checkpointable)]
#[allow(clippy::large_enum_variant)]
enum Piece {
    Block(Box<Block>),
    Dropout(Dropout),
}

#[derive(Clone, Checkpointable)]
#[spatial_split(pieces, last)]
struct Net {
    pieces: Vec<Piece>,
    last: Option<Block>,
}

fn block(vb: VarBuilder) -> Block {
    Block {
        conv: Conv2d::new(2, 2, 3, Conv2dConfig::default().padding(1), vb.pp("conv")).unwrap(),
        bn: BatchNorm2d::new(2, Default::default(), vb.pp("bn")).unwrap(),
        neuron: Lif::new(2.).unwrap().v_threshold(0.4),
    }
}

fn net(variables: &VarMap) -> Net {
    let vb = seeded(variables, 0, DType::F32, CPU);
    let pieces = vec![
        Piece::Block(Box::new(block(vb.pp("a")))),
        Piece::Dropout(Dropout::new(0.5).unwrap()),
        Piece::Block(Box::new(block(vb.pp("b")))),
    ];
    Net { pieces, last: Some(block(vb.pp("c"))) }
}

/// `[T, N, C, H, W]`
fn window(steps: usize) -> Tensor {
    Values::new(1).tensor(&[steps, 2, 2, 4, 4], DType::F32).unwrap()
}

fn refused(net: Net, plan: Plan) -> String {
    Planned::new(net, plan, Session::new(0)).err().unwrap().to_string()
}

#[test]
fn plans_are_the_same_after_text_and_json() {
    let plan = Plan::new()
        .with("a.b", Keep::Recompute)
        .with("c..d", (Keep::TimeChunks(2), Compressor::Sparse))
        .with("e", Keep::InexactTimeChunks(3))
        .with("f", (Keep::ChannelChunks(4), Compressor::Named("mine".into())));
    assert_eq!(plan.to_string(), "a.b: gc\nc..d: tcgc:2 sparse\ne: tcgc-per-chunk:3\nf: ccgc:4 mine\n");
    assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

#[test]
fn what_is_no_plan_is_refused_with_the_place() {
    for (text, says) in [
        ("a: gc\na: tcgc:2", "`a` is in the plan twice"),
        ("a gc", "`a gc` is not of the form"),
        ("a: recompute", "`recompute` is no way"),
        ("a: tcgc:0", "1 or more"),
        ("a: tcgc", "tcgc:K"),
        ("a: gc bit null", "one word"),
    ] {
        let error = text.parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    for (json, says) in [
        (r#"{"a": "gc", "a": "gc bit"}"#, "`a` is in the plan twice"),
        (r#"["a"]"#, "a map of paths"),
        (r#"{"a": 3}"#, "a string"),
        (r#"{"a": "tcgc:-1"}"#, "1 or more"),
    ] {
        let error = serde_json::from_str::<Plan>(json).unwrap_err().to_string();
        assert!(error.contains(says), "{json}: {error}");
    }
    let none = Plan::new().with("last", Keep::TimeChunks(0));
    assert!(refused(net(&VarMap::new()), none).contains("0 chunks"));
}

#[test]
fn targets_are_chosen_by_mark_type_and_path() {
    let net = net(&VarMap::new());
    let paths = |targets: Targets| plan_for(&net, &targets, Keep::Recompute).unwrap().to_string();
    let blocks = "last: gc\npieces.0: gc\npieces.2: gc\n";
    assert_eq!(paths(Targets::marked()), blocks);
    // In a list of an enum's boxes, and in an option.
    assert_eq!(paths(Targets::of::<Block>()), blocks);
    assert_eq!(paths(Targets::of::<Conv2d>()), "last.conv: gc\npieces.0.conv: gc\npieces.2.conv: gc\n");
    assert_eq!(paths(Targets::at("pieces.0..1").and_at("last.bn")), "last.bn: gc\npieces.0..1: gc\n");
    // A path may be inside of another target.
    let nested = "last: gc\npieces.0: gc\npieces.0.conv: gc\npieces.2: gc\n";
    assert_eq!(paths(Targets::at("pieces.0.conv").and_marked()), nested);

    let error = |targets: Targets| plan_for(&net, &targets, Keep::Recompute).unwrap_err().to_string();
    assert!(error(Targets::of::<memopt::nn::Linear>()).contains("Linear"));
    assert!(error(Targets::at("pieces.7")).contains("`pieces.7`"));
}

/// Counts what it is given, and packs it as bits.
#[derive(Debug, Default)]
struct Mine(AtomicUsize);

impl SpikeCompressor for Mine {
    fn name(&self) -> &str {
        "mine"
    }

    fn encode(&self, x: &Tensor) -> memopt::Result<Encoding> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Bit.encode(x)
    }
}

#[test]
fn a_plan_names_the_users_compressors() {
    let plan: Plan = "pieces.0: gc mine\nlast: gc mine".parse().unwrap();
    let error = refused(net(&VarMap::new()), plan.clone());
    assert!(error.contains("`mine` is no compressor") && error.contains("with_compressors"), "{error}");

    let mine = Arc::new(Mine::default());
    let given: Arc<dyn SpikeCompressor> = mine.clone();
    let net = Planned::with_compressors(net(&VarMap::new()), plan, Session::new(0), [given]).unwrap();
    net.forward_t(&window(3), true).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(mine.0.load(Ordering::Relaxed), 2);
}

/// What SpikingJelly's time chunks compute: the model on one chunk after the other, neurons going on.
#[test]
fn inexact_chunks_are_the_model_on_each_chunk_by_itself() {
    let run = |plan: Plan, session: Session, windows: &[Tensor]| {
        let variables = VarMap::new();
        let net = Planned::new(vec![block(seeded(&variables, 0, DType::F32, CPU))], plan, session).unwrap();
        let outputs: Vec<Tensor> = windows.iter().map(|x| net.forward_t(x, true).unwrap()).collect();
        let y = Tensor::cat(&outputs, 0).unwrap();
        // A norm that takes the window's statistics has no gradient of a plain sum.
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let data = variables.data().lock().unwrap();
        let mut named: Vec<_> = data.iter().map(|(name, v)| (name.clone(), bits(v))).collect();
        named.sort();
        let weight = gradients.get(&data["conv.weight"]).map(bits);
        (bits(&y), named, weight)
    };
    let x = window(5);
    let halves = [x.narrow(0, 0, 2).unwrap(), x.narrow(0, 2, 3).unwrap()];
    let inexact =
        run(Plan::new().with("0", Keep::InexactTimeChunks(2)), Session::new(0), std::slice::from_ref(&x));
    let by_hand = run(Plan::new(), Session::new(0).carry_states(), &halves);
    assert_eq!((&inexact.0, &inexact.1), (&by_hand.0, &by_hand.1), "outputs and running statistics");
    let exact = run(Plan::new(), Session::new(0), std::slice::from_ref(&x));
    assert_ne!(inexact.1, exact.1, "the statistics are those of the window: the test shows nothing");
    let one =
        run(Plan::new().with("0", Keep::InexactTimeChunks(1)), Session::new(0), std::slice::from_ref(&x));
    assert_eq!(one, exact, "one chunk is the window");
}

/// Without neurons nothing goes from chunk to chunk, so the gradients are the sum of those of the chunks.
#[test]
fn inexact_chunks_have_the_gradients_of_each_chunk_by_itself() {
    let gradients = |plan: Plan, windows: &[Tensor]| {
        let vb = seeded(&VarMap::new(), 0, DType::F32, CPU);
        let block = block(vb);
        let (conv, bn) = (block.conv, block.bn);
        let weights = [conv.weight().clone(), bn.weight().unwrap().clone(), bn.bias().unwrap().clone()];
        let net = Planned::new(vec![(conv, bn)], plan, Session::new(0)).unwrap();
        let outputs: Vec<Tensor> = windows.iter().map(|x| net.forward_t(x, true).unwrap()).collect();
        let y = Tensor::cat(&outputs, 0).unwrap();
        let store = (y.sqr().unwrap() * &y).unwrap().sum_all().unwrap().backward().unwrap();
        weights.map(|w| bits(store.get(&w).unwrap()))
    };
    let x = window(5);
    let halves = [x.narrow(0, 0, 2).unwrap(), x.narrow(0, 2, 3).unwrap()];
    let inexact = gradients(Plan::new().with("0", Keep::InexactTimeChunks(2)), std::slice::from_ref(&x));
    let by_hand = gradients(Plan::new(), &halves);
    let close = |a: &[u64], b: &[u64]| {
        let value = |bits: &u64| f64::from(f32::from_bits(*bits as u32));
        a.iter().zip(b).all(|(a, b)| (value(a) - value(b)).abs() <= 1e-4 * value(b).abs().max(1.))
    };
    assert!(inexact.iter().zip(&by_hand).all(|(a, b)| close(a, b)), "{inexact:?} {by_hand:?}");
    let exact = gradients(Plan::new(), std::slice::from_ref(&x));
    assert!(!inexact.iter().zip(&exact).all(|(a, b)| close(a, b)), "the test shows nothing");
}

#[test]
fn more_chunks_than_time_steps_are_noted_once() {
    let session = Session::new(0);
    let plan = Plan::new().with("last", Keep::TimeChunks(9));
    let net = Planned::new(net(&VarMap::new()), plan, session.clone()).unwrap();
    for _ in 0..2 {
        net.forward_t(&window(3), true).unwrap();
    }
    assert_eq!(session.notes(), ["`last`: 9 time chunks of a window of 3 steps: one for each step"]);
}

#[test]
fn no_states_between_chunks_are_held_until_backward() {
    let held = |name: &'static str, chunks| {
        let block = block(seeded(&VarMap::new(), 0, DType::F32, CPU));
        let context = &mut Context::training(&Session::new(0));
        let y = checkpoint_part(name, &block, window(4).into(), context, Keep::TimeChunks(chunks));
        let held = memopt::memory::held().segments.into_iter().find(|s| s.segment == name).unwrap();
        drop(y);
        held.packed + held.shared
    };
    let one = held("in one", 1);
    // The input at least, so that nothing is not mistaken for no more.
    assert!(one > 0);
    assert_eq!(held("in two", 2), one);
    assert_eq!(held("in four", 4), one);
}

#[test]
fn a_damaged_saved_plan_is_refused_or_the_same() {
    let net = net(&VarMap::new());
    let plan = plan_for(&net, &Targets::marked(), (Keep::TimeChunks(2), Compressor::Bit)).unwrap();
    let saved = SavedPlan::new(&net, plan.clone());
    let text = saved.to_json().unwrap();
    assert_eq!(SavedPlan::from_json(&text).unwrap().for_model(&net).unwrap(), plan);
    for index in 0..text.len() {
        for other in ["0", "x", "\"", "}", ""] {
            let damaged = format!("{}{other}{}", &text[..index], &text[index + 1..]);
            if let Ok(read) = SavedPlan::from_json(&damaged).and_then(|saved| saved.for_model(&net)) {
                assert_eq!(read, plan, "{damaged}");
            }
        }
        assert!(SavedPlan::from_json(&text[..index]).is_err(), "cut at {index}");
    }
    let bit = text.replace("bit", "byte");
    assert!(SavedPlan::from_json(&bit).unwrap_err().to_string().contains("checksum"));
}

#[test]
fn a_saved_plan_of_another_version_is_refused_by_its_version() {
    for text in [r#"{"version": 1, "model": "0", "plan": {}}"#, r#"{"version": 9, "more": []}"#] {
        let error = SavedPlan::from_json(text).unwrap_err().to_string();
        assert!(error.contains("of version"), "{error}");
    }
}
