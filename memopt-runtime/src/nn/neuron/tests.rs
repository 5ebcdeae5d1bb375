//! What needs the inside: the learned factor's gradient over time chunks, threads, vector units, memory.

use super::charge::Charge;
use super::firing::{Firing, Reset};
use super::passes::Passes;
use super::step::Dynamics;
use super::tiles::{tiles, TILE};
use super::window::add_descending;
use crate::compress::kernels::SimdLevel;
use crate::nn::random::Stream;
use crate::nn::Surrogate;
use candle_core::CpuStorage;

/// Gradients of a window `[T, M]` that is run in chunks of these lengths; the factor's sums by step.
#[derive(Debug, PartialEq)]
struct Run {
    spikes: Vec<u32>,
    dx: Vec<u32>,
    dv: Vec<u32>,
    factor: u32,
}

fn dynamics(decay_input: bool, reset: Reset, detach_reset: bool) -> Dynamics<f32> {
    let firing = Firing { threshold: 0.8, reset, detach_reset, surrogate: Surrogate::atan() };
    Dynamics::new(Charge::Gate { q: 0.4, decay_input }, &firing)
}

fn run(dynamics: Dynamics<f32>, neurons: usize, chunks: &[usize]) -> Run {
    run_at(SimdLevel::detected(), dynamics, neurons, chunks)
}

fn run_at(level: SimdLevel, dynamics: Dynamics<f32>, neurons: usize, chunks: &[usize]) -> Run {
    let steps: usize = chunks.iter().sum();
    let stream = |name, scale: f64, shift: f64, n: usize| -> Vec<f32> {
        let stream = Stream::new(1, 0, name);
        (0..n as u64).map(|i| ((stream.uniform(i) - 0.5) * scale + shift) as f32).collect()
    };
    let x = stream("x", 3., 0.5, steps * neurons);
    let (mut g, mut dv) = (stream("g", 2., 0., steps * neurons), stream("dv", 2., 0., neurons));
    let mut v = stream("v", 1., 0., neurons);
    fn passes(dynamics: Dynamics<f32>, v0: &[f32], level: SimdLevel) -> Passes<'_, f32> {
        Passes { dynamics, neurons: v0.len(), v0: Some(v0), level }
    }
    let mut spikes = Vec::new();
    let (mut first, mut starts) = (Vec::new(), Vec::new());
    let mut t = 0;
    for &chunk in chunks {
        let (s, last) = passes(dynamics, &v, level).fire_beside(&x[t * neurons..(t + chunk) * neurons]);
        spikes.extend(s);
        first.push(std::mem::replace(&mut v, last));
        starts.push(t);
        t += chunk;
    }
    let mut total = CpuStorage::F32(vec![0.]);
    for ((&chunk, v0), &t) in chunks.iter().zip(&first).zip(&starts).rev() {
        let range = t * neurons..(t + chunk) * neurons;
        let sums = passes(dynamics, v0, level).back_over(&x[range.clone()], &mut g[range], Some(&mut dv));
        let step = |t| sums.iter().filter_map(|tile| tile.get(t)).sum::<f64>();
        add_descending(&mut total, (0..chunk).map(step));
    }
    let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect();
    let CpuStorage::F32(total) = total else { unreachable!() };
    Run { spikes: bits(spikes), dx: bits(g), dv: bits(dv), factor: total[0].to_bits() }
}

#[test]
fn time_chunks_do_not_change_a_bit_of_the_learned_factors_gradient() {
    for decay_input in [true, false] {
        for reset in [Reset::Hard(-0.1), Reset::Soft] {
            for detach_reset in [true, false] {
                let dynamics = dynamics(decay_input, reset, detach_reset);
                let whole = run(dynamics, 2500, &[7]);
                assert!(whole.spikes.iter().any(|&s| s != 0) && whole.factor != 0);
                for chunks in [&[3, 4][..], &[1, 1, 5], &[1; 7], &[0, 7, 0]] {
                    let parts = run(dynamics, 2500, chunks);
                    assert_eq!(whole.spikes, parts.spikes);
                    assert_eq!(whole.dx, parts.dx);
                    assert_eq!(whole.dv, parts.dv);
                    assert_eq!(whole.factor, parts.factor, "{chunks:?}");
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(dynamics(true, Reset::Hard(0.), false), 5000, &[6]))
    };
    let one = with(1);
    for threads in [2, 3, 7] {
        let many = with(threads);
        assert_eq!((one.factor, &one.dx, &one.dv), (many.factor, &many.dx, &many.dv));
    }
}

fn every_dynamics() -> Vec<Dynamics<f32>> {
    let charges = [true, false].into_iter().flat_map(|decay_input| {
        [Charge::Integrate, Charge::Leak { tau: 1.333, decay_input }, Charge::Gate { q: 0.4, decay_input }]
    });
    let surrogates = [
        Surrogate::atan(),
        Surrogate::sigmoid(),
        Surrogate::piecewise_quadratic(),
        Surrogate::rectangular(),
        Surrogate::fast_sigmoid(),
    ];
    let mut all = Vec::new();
    for charge in charges {
        for surrogate in surrogates {
            for (reset, detach_reset) in [(Reset::Hard(-0.1), true), (Reset::Hard(0.), false)] {
                all.push(Dynamics::new(charge, &Firing { threshold: 0.8, reset, detach_reset, surrogate }));
            }
            for detach_reset in [true, false] {
                let reset = Reset::Soft;
                all.push(Dynamics::new(charge, &Firing { threshold: 0.8, reset, detach_reset, surrogate }));
            }
        }
    }
    all
}

#[test]
fn the_vector_unit_does_not_change_a_bit() {
    for dynamics in every_dynamics() {
        let [portable, better @ ..] = SimdLevel::available() else { unreachable!() };
        let expected = run_at(*portable, dynamics, 2500, &[4]);
        for level in better {
            assert_eq!(expected, run_at(*level, dynamics, 2500, &[4]), "{level:?}, {dynamics:?}");
        }
    }
}

#[test]
fn in_place_and_in_fresh_memory_are_the_same_bits() {
    let dynamics = dynamics(false, Reset::Hard(0.), true);
    for neurons in [0, 1, 300, 2 * TILE + 5] {
        let values =
            |shift: f32| -> Vec<f32> { (0..3 * neurons).map(|i| (i as f32 * 0.7 + shift).sin()).collect() };
        let (x, dy) = (values(0.), values(1.));
        let passes = Passes::<f32> { dynamics, neurons, v0: None, level: SimdLevel::detected() };
        let mut over = x.clone();
        let last = passes.fire_over(&mut over);
        assert_eq!(passes.fire_beside(&x), (over, last));
        let mut over = dy.clone();
        let sums = passes.back_over(&x, &mut over, None);
        assert_eq!(passes.back_beside(&x, &dy, None), (over.clone(), sums));
        // No gradient of the last potential is one of zeros.
        let (mut again, mut dv) = (dy, vec![0.; neurons]);
        passes.back_over(&x, &mut again, Some(&mut dv));
        assert_eq!(over, again);
    }
}

#[test]
fn each_step_is_rounded_to_the_weights_dtype_before_it_is_added() {
    // 1 + 2^-24 + 2^-24 in f32: from the last, small ones are summed before they are lost.
    let tiny = 2f64.powi(-24);
    let sum = |steps: &[f64]| {
        let mut total = CpuStorage::F32(vec![0.]);
        add_descending(&mut total, steps.iter().copied());
        let CpuStorage::F32(total) = total else { unreachable!() };
        total[0]
    };
    assert_eq!(sum(&[1., tiny, tiny]), 1. + f32::EPSILON);
    assert_eq!(sum(&[tiny, tiny, 1.]), 1.);
}

#[test]
fn tiles_cover_every_neuron_at_every_step_once() {
    for (steps, neurons) in [(3, 10), (2, TILE), (0, 5), (4, 0), (2, 2 * TILE + 3)] {
        let mut data = vec![0; steps * neurons];
        let tiles = tiles(&mut data, neurons, TILE);
        assert_eq!(tiles.len(), neurons.div_ceil(TILE));
        for (index, tile) in tiles.into_iter().enumerate() {
            assert_eq!(tile.len(), steps);
            for (t, row) in tile.into_iter().enumerate() {
                row.iter_mut().enumerate().for_each(|(i, e)| *e += 1 + t * neurons + index * TILE + i);
            }
        }
        assert!(data.iter().enumerate().all(|(i, &e)| e == i + 1));
    }
}
