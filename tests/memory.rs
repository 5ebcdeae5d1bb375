//! Counted bytes: what is alive, and when. One test, since the counters are the process's.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{CpuStorage, DType, Device, Module, Result, Tensor, Var};
use candle_nn::{Linear, VarMap};
use common::Values;
use memopt::autograd::{apply, Edge, Gradient, Output};
use memopt::checkpoint::{checkpoint, checkpoint_module, Options, Planned};
use memopt::compress::{Bit, Byte, Null, Pack, Sparse, SpikeCompressor};
use memopt::memory::{graph_bytes, held, live, CountingAllocator, Scope, Timeline};
use memopt::models::VggBlock;
use memopt::module::Session;
use memopt::nn::init::seeded;
use std::sync::{Arc, Mutex};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const CPU: &Device = &Device::Cpu;
/// Elements and bytes of one activation.
const N: usize = 1 << 20;
const U: usize = 4 * N;
/// For scalars, graph nodes, names.
const SMALL: usize = 64 << 10;

/// Peak above the start, and what `f` gives.
fn peak_of<T>(f: impl FnOnce() -> T) -> (usize, T) {
    let scope = Scope::enter("test").unwrap();
    let value = f();
    (scope.finish().peak_above_start(), value)
}

fn retained_by<T>(f: impl FnOnce() -> T) -> (isize, T) {
    let before = live().unwrap() as isize;
    let value = f();
    (live().unwrap() as isize - before, value)
}

fn main_checks() -> [(&'static str, fn()); 12] {
    [
        ("one_gradient_is_alive_at_an_interior_edge", one_gradient_is_alive_at_an_interior_edge),
        ("activations_die_after_their_last_user", activations_die_after_their_last_user),
        ("what_is_held_is_what_is_counted", what_is_held_is_what_is_counted),
        (
            "saved_state_is_freed_before_the_previous_backward",
            saved_state_is_freed_before_the_previous_backward,
        ),
        ("the_curve_of_a_backward_falls", the_curve_of_a_backward_falls),
        ("forward_without_backward_in_a_loop_is_flat", forward_without_backward_in_a_loop_is_flat),
        (
            "planned_forward_without_backward_in_a_loop_is_flat",
            planned_forward_without_backward_in_a_loop_is_flat,
        ),
        ("the_detached_twin_builds_no_graph", the_detached_twin_builds_no_graph),
        ("packing_allocates_what_it_keeps", packing_allocates_what_it_keeps),
        ("a_plain_graph_is_a_lower_bound", a_plain_graph_is_a_lower_bound),
        ("a_recompute_does_not_unpack_its_spikes", a_recompute_does_not_unpack_its_spikes),
        ("a_pool_is_not_run_again_for_its_gradient", a_pool_is_not_run_again_for_its_gradient),
    ]
}

#[test]
fn counted_bytes() {
    for (name, check) in main_checks() {
        println!("{name}");
        check();
    }
}

/// `2 x`, in a function that writes over its gradient.
fn doubled(x: &Tensor) -> Tensor {
    let output = Output::copy_of(&x.detach().affine(2., 0.).unwrap()).unwrap();
    let shape = x.shape().clone();
    apply("doubled", vec![Edge::to(x)], vec![output], move |mut gradients| {
        let gradient = gradients.remove(0).map(|g| {
            let mut storage = g.into_storage().unwrap();
            if let CpuStorage::F32(v) = &mut storage {
                v.iter_mut().for_each(|v| *v *= 2.);
            }
            Gradient::new(storage, shape)
        });
        Ok(vec![gradient])
    })
    .unwrap()
    .remove(0)
}

fn one_gradient_is_alive_at_an_interior_edge() {
    // A scalar variable at one end and a scalar loss at the other, so that the edges between are interior.
    let w = Var::new(1f32, CPU).unwrap();
    let spread = |w: &Var| {
        let output = vec![Output::new(CpuStorage::F32(vec![1.; N]), N)];
        apply("spread", vec![Edge::to(w)], output, |mut gradients| {
            let sum = gradients.remove(0).unwrap().into_tensor().sum_all()?;
            Ok(vec![Some(sum.into())])
        })
        .unwrap()
        .remove(0)
    };
    let gathered = |x: &Tensor| {
        apply("gathered", vec![Edge::to(x)], vec![Output::new(CpuStorage::F32(vec![0.]), ())], |_| {
            Ok(vec![Some(Gradient::new(CpuStorage::F32(vec![1.; N]), N))])
        })
        .unwrap()
        .remove(0)
    };
    let mut x = spread(&w);
    for _ in 0..6 {
        x = doubled(&x);
    }
    let loss = gathered(&x);
    drop(x);
    let (peak, gradients) = peak_of(|| loss.backward().unwrap());
    assert_eq!(gradients.get(&w).unwrap().to_scalar::<f32>().unwrap(), 64. * N as f32);
    assert!((U..U + SMALL).contains(&peak), "{peak} bytes, one gradient has {U}");

    // Candle's own edges: the gradient, zeros and the sum.
    let mut x = spread(&w);
    for _ in 0..6 {
        x = x.affine(2., 0.).unwrap();
    }
    let loss = gathered(&x);
    let (peak, _) = peak_of(|| loss.backward().unwrap());
    assert!(peak >= 3 * U, "the control shows nothing: {peak}");
}

/// Spikes of `w x` over a threshold, with a straight-through gradient: a layer whose output compresses to bits.
fn spiking(w: &Var) -> impl Fn(&[Tensor]) -> Result<Tensor> + Send + Clone + 'static {
    let w = w.clone();
    move |x: &[Tensor]| {
        let v = x[0].broadcast_mul(&w)?;
        let soft = v.tanh()?;
        let spike = v.detach().ge(0.4)?.to_dtype(DType::F32)?;
        &soft + (spike - soft.detach())?
    }
}

fn layers(n: usize) -> (Vec<Var>, Tensor) {
    let weights = (0..n).map(|_| Var::new(&[1f32], CPU).unwrap()).collect();
    (weights, Values::new(1).spikes(&[N], 0.5, DType::F32).unwrap())
}

fn checkpointed(weights: &[Var], x: &Tensor, compressor: impl SpikeCompressor + Clone + 'static) -> Tensor {
    let mut y = x.clone();
    for (i, w) in weights.iter().enumerate() {
        let options = Options::new(format!("layer.{i}")).compressor(compressor.clone()).verify(false);
        y = checkpoint(spiking(w), &[&y], options).unwrap();
    }
    y
}

fn activations_die_after_their_last_user() {
    let (weights, x) = layers(6);
    let plain = retained_by(|| {
        let mut y = x.clone();
        for w in &weights {
            y = spiking(w)(&[y]).unwrap();
        }
        y
    });
    let ours = retained_by(|| checkpointed(&weights, &x, Bit));
    // Six inputs in bits, the last output, and scalars.
    let expected = U + 6 * N / 8;
    assert!((expected..expected + SMALL).contains(&(ours.0 as usize)), "{} of {expected}", ours.0);
    assert!(plain.0 as usize > 12 * U, "{}", plain.0);
    // Kept as they are, the inputs are shared, not copied: five of them are ours, the first is the caller's.
    drop(ours);
    let null = retained_by(|| checkpointed(&weights, &x, Null));
    let expected = 6 * U;
    assert!((expected..expected + SMALL).contains(&(null.0 as usize)), "{} of {expected}", null.0);
    // After the backward nothing but the output and the gradients of the weights is left.
    let loss = null.1.sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    let left = live().unwrap();
    drop((null, loss));
    assert!((left - live().unwrap()).abs_diff(U) < SMALL);
    drop(gradients);
}

fn what_is_held_is_what_is_counted() {
    let (weights, x) = layers(4);
    let (bytes, y) = retained_by(|| checkpointed(&weights, &x, Bit));
    let holdings = held();
    assert_eq!(holdings.total, 4 * N / 8);
    assert_eq!(holdings.segments.len(), 4);
    assert!((bytes as usize - U).abs_diff(holdings.total) < SMALL);
    // A buffer that two segments keep is counted once.
    let twice = [checkpointed(&weights[..1], &x, Null), checkpointed(&weights[..1], &x, Null)];
    assert_eq!(held().total, 4 * N / 8 + U);
    drop((y, twice));
    assert_eq!(held().total, 0);
}

/// Writes to a log when it is dropped.
struct Saved(usize, Arc<Mutex<Vec<String>>>);

impl Drop for Saved {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(format!("freed {}", self.0));
    }
}

fn saved_state_is_freed_before_the_previous_backward() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let mut y = x.as_tensor().clone();
    for i in 0..4 {
        let saved = Saved(i, log.clone());
        y = checkpoint(
            move |x| {
                saved.1.lock().unwrap().push(format!("runs {}", saved.0));
                x[0].sqr()
            },
            &[&y],
            Options::new("logged"),
        )
        .unwrap();
    }
    let loss = y.sum_all().unwrap();
    log.lock().unwrap().clear();
    loss.backward().unwrap();
    let expected: Vec<String> =
        (0..4).rev().flat_map(|i| [format!("runs {i}"), format!("freed {i}")]).collect();
    assert_eq!(*log.lock().unwrap(), expected);
}

fn the_curve_of_a_backward_falls() {
    let (weights, x) = layers(6);
    let timeline = Timeline::start().unwrap();
    let loss = checkpointed(&weights, &x, Null).sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    let curve = timeline.finish();
    let marks = |what: &str| -> Vec<isize> {
        curve.marks().iter().filter(|m| m.name.ends_with(what)).map(|m| m.live).collect()
    };
    let (forward, backward) = (marks(": forward"), marks(": backward"));
    assert_eq!((forward.len(), backward.len()), (6, 6));
    // Forward: each layer leaves one input more. Backward: each gives it back; the gradient moves on.
    assert!(forward.windows(2).all(|w| (w[1] - w[0]).unsigned_abs().abs_diff(U) < SMALL), "{forward:?}");
    assert!(
        backward[..5].windows(2).all(|w| (w[0] - w[1]).unsigned_abs().abs_diff(U) < SMALL),
        "{backward:?}"
    );
    let names: Vec<_> =
        curve.marks().iter().filter(|m| m.name.ends_with(": backward")).map(|m| &m.name).collect();
    assert_eq!(names[0], "layer.5: backward");
    assert!(curve.to_string().contains("layer.5: backward"));
    drop(gradients);
}

fn forward_without_backward_in_a_loop_is_flat() {
    let (weights, x) = layers(3);
    let mut bytes = Vec::with_capacity(6);
    for _ in 0..6 {
        drop(checkpointed(&weights, &x, Bit));
        bytes.push(live().unwrap());
    }
    assert!(bytes[1..].windows(2).all(|w| w[0] == w[1]), "{bytes:?}");
}

fn planned_forward_without_backward_in_a_loop_is_flat() {
    let x = Values::new(1).spikes(&[4, 2, 2, 8, 8], 0.5, DType::F32).unwrap();
    for plan in
        ["", "0: gc\n1: gc", "0: tcgc:2\n1: tcgc:3", "0: ccgc:2\n1: ccgc:2", "0..1: gc\n1.proj_bn: gc"]
    {
        let vb = seeded(&VarMap::new(), 0, DType::F32, CPU);
        let block = |inputs, name| VggBlock::new(inputs, 4, false, 1., vb.pp(name)).unwrap();
        let blocks = vec![block(2, "a"), block(4, "b")];
        // The states are carried on, and no graph with them.
        let net = Planned::new(blocks, plan.parse().unwrap(), Session::new(0).carry_states()).unwrap();
        let mut bytes = Vec::with_capacity(12);
        for _ in 0..12 {
            drop(net.run(&x, true).unwrap());
            bytes.push(live().unwrap());
        }
        // A leak grows at every step; the queues of threads grow once, when they happen to be full.
        let grown = bytes[2..].windows(2).filter(|w| w[0] != w[1]).count();
        assert!(grown <= 1, "{bytes:?}, under\n{plan}");
        assert_eq!(held().total, 0);
    }
}

/// A block whose input is much larger than its output, of few and of many spikes.
fn a_recompute_does_not_unpack_its_spikes() {
    let (channels, outputs) = (128, 16);
    let shape = [8, 4, channels, 32, 32];
    let input = shape.iter().product::<usize>() * 4;
    let output = input / channels * outputs;
    let backward = |plan: &str, rate: f64| {
        let x = Values::new(1).spikes(&shape, rate, DType::F32).unwrap();
        let vb = seeded(&VarMap::new(), 0, DType::F32, CPU);
        let block = VggBlock::new(channels, outputs, false, 1., vb).unwrap();
        let net = Planned::new(vec![block], plan.parse().unwrap(), Session::new(0)).unwrap();
        let y = net.run(&x, true).unwrap().into_dense("spikes").unwrap();
        let loss = y.sum_all().unwrap();
        drop((x, y));
        // Buffers are by thread.
        let two = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        two.install(|| peak_of(|| loss.backward().unwrap()).0)
    };
    for (rate, buffers) in [(0.1, 3 << 20), (0.5, 7 << 20)] {
        for plan in ["0: gc bit", "0: ccgc:2 bit"] {
            let peak = backward(plan, rate);
            assert!(peak < 2 * output + buffers, "{plan}, {rate}: {peak}");
        }
        assert!(backward("0: gc byte", rate) > input, "what is kept in another way is unpacked");
    }
}

/// The way back through a pool takes no values of what went into it.
fn a_pool_is_not_run_again_for_its_gradient() {
    let shape = [8, 4, 128, 32, 32];
    let input = shape.iter().product::<usize>() * 4;
    let spikes = Values::new(1).spikes(&shape, 0.1, DType::F32).unwrap();
    // Where the gradient goes, so that Candle does not add it to zeros.
    let (w, output) = (Var::zeros((), DType::F32, CPU).unwrap(), Output::copy_of(&spikes).unwrap());
    let made = apply("spikes", vec![Edge::to(&w)], vec![output], move |mut gradients| {
        let dx = gradients.remove(0).map(Gradient::into_tensor);
        assert_eq!(dx.as_ref().map(Tensor::dims), Some(&shape[..]));
        Ok(vec![dx.map(|dx| Gradient::from(dx.sum_all().unwrap()))])
    });
    let x = made.unwrap().remove(0);
    let vb = seeded(&VarMap::new(), 0, DType::F32, CPU);
    let block = VggBlock::new(128, 16, true, 1., vb).unwrap();
    let net = Planned::new(vec![block], "0: gc bit".parse().unwrap(), Session::new(0)).unwrap();
    let loss = net.run(&x, true).unwrap().into_dense("spikes").unwrap().sum_all().unwrap();
    drop((spikes, x));
    let two = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let (peak, gradients) = two.install(|| peak_of(|| loss.backward().unwrap()));
    // The gradient itself, and a quarter of it at the pool's output.
    assert!(peak < input + input / 4 + (3 << 20), "{peak} of {input}");
    assert!(gradients.get(&w).is_some());
}

fn the_detached_twin_builds_no_graph() {
    let side = 256;
    let w = Var::from_tensor(&Values::new(1).tensor(&[side, side], DType::F32).unwrap()).unwrap();
    let layer = Linear::new(w.as_tensor().clone(), None);
    let x = Values::new(2).spikes(&[4 * side, side], 0.3, DType::F32).unwrap();
    let u = 4 * side * side * 4;
    let deep = |layer: &Linear, x: &[Tensor]| {
        let mut y = x[0].clone();
        for _ in 0..4 {
            y = layer.forward(&y)?.tanh()?;
        }
        Ok(y)
    };
    let options = Options::new("deep").compressor(Bit).verify(false);
    let (twin, y) = peak_of(|| -> Tensor { checkpoint_module(&layer, deep, &[&x], &options).unwrap() });
    drop(y);
    let captured = layer.clone();
    let (closure, y) = peak_of(|| checkpoint(move |x| deep(&captured, x), &[&x], &options).unwrap());
    drop(y);
    assert!(twin < 4 * u, "two activations and the output's copy at most: {twin} of {u} each");
    assert!(closure > 7 * u, "the whole graph of four layers: {closure}");
}

fn packing_allocates_what_it_keeps() {
    let x = Values::new(1).spikes(&[N], 0.1, DType::F32).unwrap();
    for (compressor, expected) in [(&Bit as &dyn SpikeCompressor, N / 8), (&Byte, N), (&Sparse, N * 2 / 10)] {
        let (peak, packed) = peak_of(|| compressor.pack(&x).unwrap());
        assert!(packed.bytes().abs_diff(expected) < expected / 10 + SMALL, "{packed:?}");
        assert!(peak < packed.bytes() + SMALL, "{}: peak {peak} for {}", compressor.name(), packed.bytes());
        let (peak, y) = peak_of(|| packed.unpack().unwrap());
        assert!(peak < U + SMALL, "{}: unpacking took {peak}", compressor.name());
        drop(y);
    }
    // What does not fit costs nothing.
    let floats = Values::new(2).tensor(&[N], DType::F32).unwrap();
    let (peak, packed) = peak_of(|| Bit.pack(&floats).unwrap());
    assert!(packed.is_fallback() && peak < N / 8 + SMALL, "{peak}");
}

fn a_plain_graph_is_a_lower_bound() {
    let (weights, x) = layers(3);
    let (bytes, y) = retained_by(|| {
        let mut y = x.clone();
        for w in &weights {
            y = spiking(w)(&[y]).unwrap();
        }
        y
    });
    let bound = graph_bytes(&[y]);
    assert!(bound.bytes >= 3 * 3 * U && bound.bytes <= bytes as usize, "{bound} of {bytes}");
    assert!(bound.to_string().starts_with("at least"));
    // Views of a weight keep alive what is alive anyway.
    let w = Var::zeros((512, 512), DType::F32, CPU).unwrap();
    let layer = Linear::new(w.as_tensor().clone(), None);
    let (bytes, y) =
        retained_by(|| layer.forward(&Tensor::ones((1, 512), DType::F32, CPU).unwrap()).unwrap());
    let bound = graph_bytes(&[y]);
    assert!(bound.bytes >= 512 * 4 && bound.bytes <= bytes as usize, "{bound} of {bytes}");
}
