//! The gradient of the weight by tiles.

use super::exactness::{error, wide};
use super::{bits, naive, weight_gradient_of, Case};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::direct;
use crate::nn::conv::dispatch::Dispatch;
use crate::nn::conv::geometry::Geometry;

/// Sizes of one band and of many, with blocks of channels that are not full, borders that are, and odd planes.
fn cases() -> impl Iterator<Item = Case> {
    let sizes = [
        ([32, 32], [8, 8], [1, 1]),
        ([45, 77], [9, 13], [1, 1]),
        ([64, 130], [25, 31], [1, 1]),
        ([260, 300], [13, 17], [2, 0]),
        ([33, 40], [10, 64], [0, 2]),
        ([40, 36], [2, 130], [2, 1]),
    ];
    sizes.into_iter().enumerate().map(|(seed, (channels, size, padding))| {
        let images = vec![None, Some(60), None, Some(10), None];
        Case { channels, size, padding, images, seed: seed as u64 }
    })
}

/// The geometry, of which it is certain that it allows tiles.
fn geometry(case: &Case) -> Geometry {
    let geometry = case.geometry();
    assert!(Dispatch::new(&geometry).weight.is_some(), "{case:?}");
    geometry
}

/// By products only.
fn by_products(geometry: &Geometry, x: &[f32], dy: &[f32], mut to: Vec<f32>) -> Vec<f32> {
    direct::add_weight_gradient(geometry, x, dy, &mut to).unwrap();
    to
}

#[test]
fn images_levels_and_threads_do_not_show() {
    for case in cases() {
        let geometry = geometry(&case);
        let (x, dy) = (case.x(), case.dy());
        let whole = weight_gradient_of(SimdLevel::Portable, &geometry, &x, &dy, case.weight());
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for &level in SimdLevel::available() {
                let got = pool.install(|| weight_gradient_of(level, &geometry, &x, &dy, case.weight()));
                assert_eq!(bits(&whole), bits(&got), "{threads} {level:?} {case:?}");
            }
        }
        let (from, to) = (geometry.input_image(), geometry.output_image());
        for step in [1, 2, 3] {
            let mut sum = case.weight();
            for (x, dy) in x.rchunks(step * from).zip(dy.rchunks(step * to)) {
                sum = weight_gradient_of(SimdLevel::detected(), &geometry, x, dy, sum);
            }
            assert_eq!(bits(&whole), bits(&sum), "{step} {case:?}");
        }
    }
}

/// Of normal values, and of values as behind an average pool: quarters from 0 to 1.
#[test]
fn tiles_are_about_as_exact_as_products() {
    for case in cases().map(|case| Case { images: vec![None, Some(60)], ..case }) {
        let geometry = geometry(&case);
        let (normal, dy) = (case.x(), case.dy());
        let pooled = normal.iter().map(|x| (4. * x).round().clamp(0., 4.) / 4.).collect();
        for x in [normal, pooled] {
            let zero = vec![0.; case.weight().len()];
            let bias = vec![0.; geometry.outputs];
            let exact = &naive(&geometry, &wide(&x), &wide(&dy), &wide(&zero), &bias)[2];
            let products = error(&wide(&by_products(&geometry, &x, &dy, zero.clone())), exact);
            let tiles = weight_gradient_of(SimdLevel::detected(), &geometry, &x, &dy, zero);
            let tiles = error(&wide(&tiles), exact);
            assert!(tiles < 1e-6 && tiles < 4. * products, "{tiles:e} {products:e} {case:?}");
        }
    }
}

/// An image that is not ordinary, or whose gradient is not, goes by products, in its place between the others.
#[test]
fn images_of_unusual_values_go_by_products() {
    for case in cases() {
        let geometry = geometry(&case);
        let (from, to) = (geometry.input_image(), geometry.output_image());
        for bad in [f32::NAN, f32::INFINITY, -1e30] {
            for of_gradient in [false, true] {
                let (mut x, mut dy) = (case.x(), case.dy());
                match of_gradient {
                    true => dy[2 * to + 7] = bad,
                    false => x[2 * from + 7] = bad,
                }
                let mut expected = case.weight();
                for (index, (x, dy)) in x.chunks(from).zip(dy.chunks(to)).enumerate().rev() {
                    expected = match index {
                        2 => by_products(&geometry, x, dy, expected),
                        _ => weight_gradient_of(SimdLevel::detected(), &geometry, x, dy, expected),
                    };
                }
                let got = weight_gradient_of(SimdLevel::detected(), &geometry, &x, &dy, case.weight());
                let same = got
                    .iter()
                    .zip(&expected)
                    .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
                assert!(same, "{bad} {of_gradient} {case:?}");
                // Only kernels of its own channel: the first input, or the first output.
                let spoiled = |index: usize| match of_gradient {
                    true => index < 9 * geometry.inputs,
                    false => (index / 9).is_multiple_of(geometry.inputs),
                };
                let finite = |(index, value): (usize, &f32)| spoiled(index) || value.abs() < 1e10;
                assert!(got.iter().enumerate().all(finite), "{bad} {of_gradient} {case:?}");
            }
        }
    }
}
