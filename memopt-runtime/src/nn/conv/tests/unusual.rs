//! Values that are not finite, and no images.

use super::{bits, forward_of, input_gradient_of, weight_gradient_of, Case};
use crate::compress::kernels::SimdLevel;

fn case() -> Case {
    let images = vec![Some(10), None, Some(0), Some(15)];
    Case { channels: [18, 70], size: [7, 6], padding: [1, 1], images, seed: 9 }
}

/// Which elements are finite.
fn finite(values: &[f32]) -> Vec<bool> {
    values.iter().map(|value| value.is_finite()).collect()
}

#[test]
fn a_weight_that_is_not_finite_spoils_its_own_channel() {
    let case = case();
    let geometry = case.geometry();
    let (x, bias) = (case.x(), case.bias());
    for bad in [f32::NAN, f32::INFINITY, 1e30] {
        let mut weight = case.weight();
        weight[40 * 18 * 9 + 4] = bad;
        for &level in SimdLevel::available() {
            let y = forward_of(level, &geometry, &x, &weight, &bias);
            let clean = forward_of(level, &geometry, &x, &case.weight(), &bias);
            for (index, (y, clean)) in y.chunks(42).zip(clean.chunks(42)).enumerate() {
                let (image, channel) = (index / 70, index % 70);
                if channel != 40 {
                    assert!(y.iter().zip(clean).all(|(a, b)| (a - b).abs() < 1e-4), "{image} {channel}");
                }
                // Zero times infinity.
                assert!(channel != 40 || bad == 1e30 || y.iter().all(|y| !y.is_finite()));
            }
            // Other groups have other kernels, and the same bits.
            assert_eq!(bits(&y[..32 * 42]), bits(&clean[..32 * 42]));
        }
    }
}

#[test]
fn an_input_that_is_not_finite_spoils_its_own_neighbours() {
    let case = case();
    let geometry = case.geometry();
    let mut x = case.x();
    let image = geometry.input_image();
    // Row 3, column 3 of the first channel of the dense image.
    x[image + 3 * 6 + 3] = f32::NAN;
    let y = forward_of(SimdLevel::detected(), &geometry, &x, &case.weight(), &case.bias());
    for (index, &y) in y.iter().enumerate() {
        let (image, pixel) = (index / geometry.output_image(), index % 42);
        let near = (pixel / 6).abs_diff(3) <= 1 && (pixel % 6).abs_diff(3) <= 1;
        assert_eq!(y.is_finite(), !(image == 1 && near), "{index}");
    }
    let mut dy = case.dy();
    dy[2 * geometry.output_image() + 3 * 6 + 3] = f32::INFINITY;
    let dx = input_gradient_of(SimdLevel::detected(), &geometry, &dy, &case.weight());
    for (index, &dx) in dx.iter().enumerate() {
        let (image, pixel) = (index / geometry.input_image(), index % 42);
        let near = (pixel / 6).abs_diff(3) <= 1 && (pixel % 6).abs_diff(3) <= 1;
        assert_eq!(dx.is_finite(), !(image == 2 && near), "{index}");
    }
}

/// Zero times such a gradient is no number, so that it shows at every weight of its channel.
#[test]
fn a_gradient_that_is_not_finite_is_not_hidden() {
    let case = case();
    let geometry = case.geometry();
    for image in 0..4 {
        for bad in [f32::NAN, f32::NEG_INFINITY] {
            let mut dy = case.dy();
            dy[image * geometry.output_image() + 33 * 42 + 20] = bad;
            for &level in SimdLevel::available() {
                let dw = weight_gradient_of(level, &geometry, &case.x(), &dy, case.weight());
                let expected: Vec<bool> = (0..70 * 18 * 9).map(|index| index / (18 * 9) != 33).collect();
                // In the dense image, no element is zero.
                if image != 1 || bad.is_nan() {
                    assert_eq!(finite(&dw), expected, "{image} {bad}");
                }
            }
        }
    }
}

#[test]
fn no_images() {
    let case = Case { images: Vec::new(), ..case() };
    let geometry = case.geometry();
    let level = SimdLevel::detected();
    assert!(forward_of::<f32>(level, &geometry, &[], &case.weight(), &case.bias()).is_empty());
    assert!(input_gradient_of::<f32>(level, &geometry, &[], &case.weight()).is_empty());
    let dw = weight_gradient_of::<f32>(level, &geometry, &[], &[], case.weight());
    assert_eq!(bits(&dw), bits(&case.weight()));
}
