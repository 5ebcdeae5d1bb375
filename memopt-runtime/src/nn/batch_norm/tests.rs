//! What needs the inside: vector units, threads, memory, and the accuracy of the one pass.

use super::kernels::{channels, Passes};
use crate::compress::kernels::SimdLevel;
use crate::module::{NormStatistics, NormSums};
use crate::nn::random::Stream;
use crate::nn::reduce::Planes;

const PLANES: Planes = Planes { steps: 3, images: 2, channels: 35, size: 77 };

fn values(name: &str, shift: f64) -> Vec<f32> {
    let stream = Stream::new(1, 0, name);
    (0..PLANES.len() as u64).map(|i| (stream.uniform(i) * 2. + shift) as f32).collect()
}

fn statistics_of(passes: Passes, z: &[f32]) -> NormStatistics {
    let mut statistics = NormStatistics { mean: vec![0.; 35], squares: vec![0.; 35], count: 0. };
    passes.add_statistics(z, &mut statistics);
    statistics
}

/// Output, input gradient, statistics and sums.
type Run = (Vec<f32>, Vec<f32>, NormStatistics, NormSums);

fn run(level: SimdLevel) -> Run {
    let passes = Passes { planes: PLANES, level };
    let (z, mut dy) = (values("z", 3.), values("dy", -1.));
    let statistics = statistics_of(passes, &z);
    let (weight, bias) = (vec![1.5; 35], vec![-0.25; 35]);
    let channels = channels(&statistics, 1e-5, Some((&weight, &bias)));
    let y = passes.normalize_beside(&channels, &z);
    let mut over = z.clone();
    passes.normalize_over(&channels, &mut over);
    assert_eq!(y, over);
    let mut sums = NormSums { dy: vec![0.; 35], dy_normalized: vec![0.; 35] };
    passes.add_sums(0..3, &channels, (&z, &dy), &mut sums);
    passes.input_gradient(&channels, &z, &mut dy, (&sums, statistics.count));
    (y, dy, statistics, sums)
}

#[test]
fn the_vector_unit_does_not_change_a_bit() {
    let [portable, better @ ..] = SimdLevel::available() else { unreachable!() };
    for level in better {
        assert_eq!(run(*portable), run(*level), "{level:?}");
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(SimdLevel::detected()))
    };
    assert_eq!(with(1), with(2));
    assert_eq!(with(1), with(7));
}

#[test]
fn one_pass_is_as_accurate_as_two() {
    for (scale, outlier) in [(1., 0.), (1e-3, 0.), (1., 1e6), (1e3, -1e4)] {
        let mut z: Vec<f32> = values("z", 100.).iter().map(|z| z * scale).collect();
        // The first element is the one that the sums are shifted by.
        z[0] += outlier;
        let statistics = statistics_of(Passes::new(PLANES), &z);
        let Planes { channels, size, .. } = PLANES;
        for channel in 0..channels {
            let planes = z.chunks_exact(size).skip(channel).step_by(channels);
            let of: Vec<f64> = planes.flatten().map(|&z| f64::from(z)).collect();
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            let squares = of.iter().map(|z| (z - mean).powi(2)).sum::<f64>();
            assert!((statistics.mean[channel] - mean).abs() <= 1e-12 * mean.abs());
            assert!((statistics.squares[channel] - squares).abs() <= 1e-11 * squares, "{scale} {outlier}");
        }
    }
}
