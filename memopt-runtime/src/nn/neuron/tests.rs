//! What needs the inside: the learned factor's gradient over time chunks, and the thread count.

use super::charge::Charge;
use super::firing::{Firing, Reset};
use super::step::Dynamics;
use super::tiles::{for_each, tiles, Columns, TILE};
use super::window::add_descending;
use crate::nn::random::Stream;
use crate::nn::Surrogate;
use candle_core::CpuStorage;

/// Gradients of a window `[T, M]` that is run in chunks of these lengths; the factor's sums by step.
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
    let steps: usize = chunks.iter().sum();
    let stream = |name, scale: f64, shift: f64, n: usize| -> Vec<f32> {
        let stream = Stream::new(1, 0, name);
        (0..n as u64).map(|i| ((stream.uniform(i) - 0.5) * scale + shift) as f32).collect()
    };
    let x = stream("x", 3., 0.5, steps * neurons);
    let (mut g, mut dv) = (stream("g", 2., 0., steps * neurons), stream("dv", 2., 0., neurons));
    let mut v = stream("v", 1., 0., neurons);
    let mut spikes = vec![0f32; steps * neurons];
    let (mut first, mut starts) = (Vec::new(), Vec::new());
    let mut t = 0;
    for &chunk in chunks {
        let range = t * neurons..(t + chunk) * neurons;
        first.push(v.clone());
        starts.push(t);
        let x = Columns { data: &x[range.clone()], neurons };
        for_each(tiles(&mut spikes[range], &mut v, TILE), usize::MAX, |tile| dynamics.forward(x, tile));
        t += chunk;
    }
    let mut total = CpuStorage::F32(vec![0.]);
    for ((&chunk, v0), &t) in chunks.iter().zip(&first).zip(&starts).rev() {
        let range = t * neurons..(t + chunk) * neurons;
        let x = Columns { data: &x[range.clone()], neurons };
        let tiles = tiles(&mut g[range], &mut dv, TILE);
        let sums = for_each(tiles, usize::MAX, |tile| dynamics.backward(x, Some(v0), tile));
        let step = |t: usize| sums.iter().map(|tile| tile[t]).sum::<f64>();
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
    for (steps, neurons, width) in [(3, 10, 4), (1, 8, 4), (0, 5, 4), (4, 0, 4), (2, 3, 8)] {
        let (mut data, mut v) = (vec![0; steps * neurons], vec![0; neurons]);
        for tile in tiles(&mut data, &mut v, width) {
            assert_eq!(tile.rows.len(), steps);
            assert_eq!(tile.start % width, 0);
            for (i, v) in tile.v.iter_mut().enumerate() {
                *v += 1 + tile.start + i;
            }
            for (t, row) in tile.rows.into_iter().enumerate() {
                row.iter_mut().enumerate().for_each(|(i, e)| *e += 1 + t * neurons + tile.start + i);
            }
        }
        assert!(data.iter().enumerate().all(|(i, &e)| e == i + 1));
        assert!(v.iter().enumerate().all(|(i, &e)| e == i + 1));
    }
}
