//! Against a convolution in f64, one element after the other.

use super::{forward_of, input_gradient_of, naive, weight_gradient_of, Case};
use crate::compress::kernels::SimdLevel;
use half::bf16;
use proptest::prelude::*;

pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The largest difference, relative to the largest value.
pub(super) fn error(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().fold(1e-30f64, |largest, value| largest.max(value.abs()));
    got.iter().zip(expected).fold(0., |worst: f64, (a, b)| worst.max((a - b).abs())) / largest
}

fn check(case: &Case) {
    let geometry = case.geometry();
    let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
    let exact = naive(&geometry, &wide(&x), &wide(&dy), &wide(&weight), &wide(&bias));
    for &level in SimdLevel::available() {
        let zero = vec![0.; weight.len()];
        let y = forward_of(level, &geometry, &x, &weight, &bias);
        let dx = input_gradient_of(level, &geometry, &dy, &weight);
        let dw = weight_gradient_of(level, &geometry, &x, &dy, zero);
        for (index, (got, exact)) in [y, dx, dw].iter().zip(&exact).enumerate() {
            let error = error(&wide(got), exact);
            assert!(error < 3e-6, "{index}: {error:e}, {case:?}");
        }
        let (x, dy, weight, bias) = (wide(&x), wide(&dy), wide(&weight), wide(&bias));
        let zero = vec![0.; weight.len()];
        let y = forward_of(level, &geometry, &x, &weight, &bias);
        let dx = input_gradient_of(level, &geometry, &dy, &weight);
        let dw = weight_gradient_of(level, &geometry, &x, &dy, zero);
        for (index, (got, exact)) in [y, dx, dw].iter().zip(&exact).enumerate() {
            let error = error(got, exact);
            assert!(error < 1e-14, "f64 {index}: {error:e}, {case:?}");
        }
    }
}

pub(super) fn cases(images: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let percent = prop::sample::select(vec![None, Some(0), Some(5), Some(15), Some(30), Some(60)]);
    let channels = [13..70usize, 1..80usize];
    let size = [1..11usize, 1..19usize];
    (channels, size, [0..3usize, 0..3usize], prop::collection::vec(percent, images), any::<u32>()).prop_map(
        |(channels, size, padding, images, seed)| {
            // Large enough for one output.
            let size = [0, 1].map(|axis: usize| size[axis].max(3usize.saturating_sub(2 * padding[axis])));
            Case { channels, size, padding, images, seed: seed.into() }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn convolutions_are_exact(case in cases(1..5)) {
        check(&case);
    }
}

#[test]
fn convolutions_of_any_width_are_exact() {
    for width in (1..131).filter(|width| width % 9 == 1 || [62, 63, 65, 66, 127, 128, 129].contains(width)) {
        let images = vec![Some(10), None];
        check(&Case { channels: [16, 33], size: [3, width], padding: [1, 1], images, seed: width as u64 });
    }
}

/// Beyond one product's depth, and one block of output channels.
#[test]
fn convolutions_of_many_channels_are_exact() {
    for channels in [[513, 40], [40, 130], [600, 16]] {
        let images = vec![Some(10), None];
        check(&Case { channels, size: [5, 4], padding: [1, 1], images, seed: 3 });
    }
}

/// More images than one round of masks, and than one task's.
#[test]
fn many_images_are_as_few() {
    let images = (0..700).map(|i| (i % 3 > 0).then_some(10)).collect();
    let case = Case { channels: [64, 32], size: [16, 3], padding: [1, 1], images, seed: 3 };
    let geometry = case.geometry();
    let (x, weight, bias) = (case.x(), case.weight(), case.bias());
    let y = forward_of(SimdLevel::detected(), &geometry, &x, &weight, &bias);
    for (x, y) in x.chunks(geometry.input_image()).zip(y.chunks(geometry.output_image())).step_by(41) {
        let alone = forward_of(SimdLevel::detected(), &geometry, x, &weight, &bias);
        assert_eq!(super::bits(&alone), super::bits(y));
    }
}

/// bf16 is computed in f32 and rounded once.
#[test]
fn half_precision_is_rounded_once() {
    let images = vec![Some(10), None, Some(5)];
    for padding in 0..3 {
        let case =
            Case { channels: [20, 40], size: [6, 7], padding: [padding; 2], images: images.clone(), seed: 5 };
        let geometry = case.geometry();
        let half = |values: &[f32]| values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
        let single = |values: &[bf16]| values.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
        let (x, dy, weight, bias) = (half(&case.x()), half(&case.dy()), case.weight(), case.bias());
        let level = SimdLevel::detected();
        let y = forward_of(level, &geometry, &single(&x), &weight, &bias);
        assert_eq!(forward_of(level, &geometry, &x, &weight, &bias), half(&y));
        let dx = input_gradient_of(level, &geometry, &single(&dy), &weight);
        assert_eq!(input_gradient_of(level, &geometry, &dy, &weight), half(&dx));
        let zero = vec![0.; weight.len()];
        let dw = weight_gradient_of(level, &geometry, &single(&x), &single(&dy), zero.clone());
        assert_eq!(weight_gradient_of(level, &geometry, &x, &dy, zero), dw);
    }
}
