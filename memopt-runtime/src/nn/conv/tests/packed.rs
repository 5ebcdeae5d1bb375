//! Images that come in as bits give the bits that their floats give.

use super::exactness::cases;
use super::{bits, Case};
use crate::compress::kernels::{self, Bits, SimdLevel};
use crate::nn::conv::config::ConvConfig;
use crate::nn::conv::geometry::Geometry;
use crate::nn::conv::images::Images;
use crate::nn::conv::{backward, forward};
use crate::nn::element::{Element, Real};
use half::{bf16, f16};
use proptest::prelude::*;

/// Output and gradient of the weight.
fn both<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: Images<'_, E>,
    (dy, weight, bias): (&[E], &[E::Real], &[E::Real]),
) -> [Vec<u64>; 2] {
    let mut y = vec![<E as Element>::ZERO; dy.len()];
    forward::forward(level, geometry, x, weight, Some(bias), &mut y).unwrap();
    let mut dw = weight.to_vec();
    backward::add_weight_gradient(level, geometry, x, dy, &mut dw).unwrap();
    [
        y.iter().map(|value| value.load().to_f64().to_bits()).collect(),
        dw.iter().map(|value| value.to_f64().to_bits()).collect(),
    ]
}

/// Compares the two after `before` other elements, in elements of type `E`.
fn check<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    before: usize,
    (x, dy, weight, bias): (&[f32], &[f32], &[f32], &[f32]),
) {
    let real = |values: &[f32]| -> Vec<E::Real> {
        values.iter().map(|&value| E::Real::from_f64(f64::from(value))).collect()
    };
    let floats = |values: &[f32]| -> Vec<E> { real(values).into_iter().map(E::store).collect() };
    let (values, dy, weight, bias) = (floats(x), floats(dy), real(weight), real(bias));
    let mut all = vec![<E as Element>::ONE; before];
    all.extend(&values);
    all.extend([<E as Element>::ONE; 3]);
    let packed = Bits::pack(level, &all).unwrap();
    let image = geometry.input_image();
    let rest = (dy.as_slice(), weight.as_slice(), bias.as_slice());
    let of_floats = both(level, geometry, Images::of_floats(&values, image), rest);
    let count = values.len() / image;
    let of_bits = both(level, geometry, Images::of_bits(packed.words(), before, count, image), rest);
    assert!(of_floats == of_bits, "{geometry:?}, {count} images after {before} elements");
}

/// The same in each type.
fn check_all(case: &Case, before: usize, weight: &[f32]) {
    let geometry = case.geometry();
    let (x, dy, bias) = (case.x(), case.dy(), case.bias());
    for &level in SimdLevel::available() {
        check::<f32>(level, &geometry, before, (&x, &dy, weight, &bias));
    }
    let level = SimdLevel::detected();
    check::<f64>(level, &geometry, before, (&x, &dy, weight, &bias));
    check::<bf16>(level, &geometry, before, (&x, &dy, weight, &bias));
    check::<f16>(level, &geometry, before, (&x, &dy, weight, &bias));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn images_of_any_size_and_density(
        mut case in cases(0..7),
        densities in prop::collection::vec(prop::sample::select(vec![0, 2, 15, 22, 30, 41, 80, 100]), 7),
        before in 0..200usize,
        bad in prop::option::of(prop::sample::select(vec![f32::NAN, f32::INFINITY, 1e30])),
        place in any::<prop::sample::Index>(),
    ) {
        case.images.iter_mut().zip(densities).for_each(|(image, density)| *image = Some(density));
        let mut weight = case.weight();
        if let Some(bad) = bad {
            // f16 has no such value, but infinity.
            weight[place.index(case.channels[0] * case.channels[1] * 9)] = bad;
        }
        check_all(&case, before, &weight);
    }
}

#[test]
fn rows_of_odd_widths() {
    for width in [1, 63, 64, 65, 130] {
        let images = vec![Some(10), Some(50), Some(0), Some(100), Some(30), Some(10)];
        let case = Case { channels: [17, 35], size: [4, width], padding: [1, 1], images, seed: 4 };
        for before in [0, 1, 64, 4 * 17 * width] {
            check_all(&case, before, &case.weight());
        }
    }
}

/// More than is unpacked at a time, and than one round of masks.
#[test]
fn many_images() {
    for channels in [[64, 32], [8, 32]] {
        let images = (0..700).map(|i| Some(if i % 3 > 0 { 10 } else { 60 })).collect();
        let case = Case { channels, size: [16, 3], padding: [1, 1], images, seed: 3 };
        let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        check::<f32>(SimdLevel::detected(), &case.geometry(), 5, (&x, &dy, &weight, &bias));
    }
}

/// Kernels that have none for bits.
#[test]
fn other_sizes() {
    let random =
        Case { channels: [24, 24], size: [9, 10], padding: [1, 1], images: vec![Some(20); 5], seed: 8 };
    for (groups, kernel, stride, dilation) in
        [(1, 1, 1, 1), (2, 3, 1, 1), (4, 3, 2, 1), (1, 3, 1, 2), (24, 2, 3, 1)]
    {
        let config = ConvConfig::<2>::default().padding(1).groups(groups).stride(stride).dilation(dilation);
        let geometry = Geometry::new(&config, &[24, 24 / groups, kernel, kernel], 24, &[9, 10]).unwrap();
        let (x, weight) = (random.x(), random.weight());
        let weight = &weight[..24 * 24 / groups * kernel * kernel];
        let dy: Vec<f32> = random.dy().into_iter().cycle().take(5 * geometry.output_image()).collect();
        check::<f32>(SimdLevel::detected(), &geometry, 3, (&x, &dy, weight, &random.bias()));
        check::<bf16>(SimdLevel::detected(), &geometry, 3, (&x, &dy, weight, &random.bias()));
    }
}

/// Kernels of 1x1 that read bits: few ones, many, and none.
#[test]
fn pointwise() {
    let images = vec![Some(20), Some(80), Some(0), Some(30)];
    let random = Case { channels: [40, 40], size: [9, 10], padding: [0, 0], images, seed: 8 };
    let geometry = Geometry::new(&ConvConfig::<2>::default(), &[40, 40, 1, 1], 40, &[9, 10]).unwrap();
    let (x, weight) = (random.x(), random.weight());
    let dy: Vec<f32> = random.dy().into_iter().cycle().take(4 * geometry.output_image()).collect();
    for &level in SimdLevel::available() {
        check::<f32>(level, &geometry, 3, (&x, &dy, &weight[..40 * 40], &random.bias()));
        check::<bf16>(level, &geometry, 70, (&x, &dy, &weight[..40 * 40], &random.bias()));
    }
}

/// The control of the tests above: other bits are other results.
#[test]
fn bits_in_another_place_show() {
    let case = Case { channels: [16, 32], size: [5, 5], padding: [1, 1], images: vec![Some(20); 2], seed: 2 };
    let (x, geometry) = (case.x(), case.geometry());
    let packed = Bits::pack(SimdLevel::detected(), &x).unwrap();
    let y = |start: usize| {
        let mut y = vec![0f32; geometry.output_image()];
        let x = Images::of_bits(packed.words(), start, 1, geometry.input_image());
        forward::forward(SimdLevel::detected(), &geometry, x, &case.weight(), None, &mut y).unwrap();
        bits(&y)
    };
    assert_ne!(y(0), y(1));
}
