//! The same bits however images and output channels are cut, with any instructions and threads.

use super::exactness::cases;
use super::{bits, forward_of, input_gradient_of, weight_gradient_of, Case};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::geometry::Geometry;
use proptest::prelude::*;

/// Output, gradient of the input, gradient of the weight.
fn all(level: SimdLevel, case: &Case) -> [Vec<u32>; 3] {
    let geometry = case.geometry();
    let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
    let y = forward_of(level, &geometry, &x, &weight, &bias);
    let dx = input_gradient_of(level, &geometry, &dy, &weight);
    let dw = weight_gradient_of(level, &geometry, &x, &dy, case.weight());
    [y, dx, dw].map(|values| bits(&values))
}

/// The geometry of some output channels.
fn of_channels(geometry: &Geometry, outputs: usize) -> Geometry {
    Geometry { outputs, ..*geometry }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn images_may_be_cut_anywhere(case in cases(1..12), cuts in any::<[bool; 12]>()) {
        let (level, geometry) = (SimdLevel::detected(), case.geometry());
        let (from, to) = (geometry.input_image(), geometry.output_image());
        let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        let whole = all(level, &case);
        let (mut y, mut dx, mut dw) = (Vec::new(), Vec::new(), case.weight());
        let mut borders: Vec<usize> = (1..case.images.len()).filter(|&image| cuts[image]).collect();
        borders.insert(0, 0);
        borders.push(case.images.len());
        for part in borders.windows(2) {
            let (x, dy) = (&x[part[0] * from..part[1] * from], &dy[part[0] * to..part[1] * to]);
            y.extend(forward_of(level, &geometry, x, &weight, &bias));
            dx.extend(input_gradient_of(level, &geometry, dy, &weight));
        }
        for part in borders.windows(2).rev() {
            let (x, dy) = (&x[part[0] * from..part[1] * from], &dy[part[0] * to..part[1] * to]);
            dw = weight_gradient_of(level, &geometry, x, dy, dw);
        }
        prop_assert_eq!(whole, [bits(&y), bits(&dx), bits(&dw)]);
    }

    #[test]
    fn output_channels_may_be_cut_between_groups(mut case in cases(1..6), outputs in 33..170usize, cut in 1..5usize) {
        case.channels[1] = outputs;
        let (level, geometry) = (SimdLevel::detected(), case.geometry());
        let (x, weight, bias) = (case.x(), case.weight(), case.bias());
        let whole = forward_of(level, &geometry, &x, &weight, &bias);
        let k = geometry.inputs * 9;
        let plane = geometry.output_plane();
        let cut = (cut * 32).min(outputs / 32 * 32);
        for channels in [0..cut, cut..outputs] {
            if channels.is_empty() {
                continue;
            }
            let part = of_channels(&geometry, channels.len());
            let weight = &weight[channels.start * k..channels.end * k];
            let y = forward_of(level, &part, &x, weight, &bias[channels.clone()]);
            for (y, whole) in y.chunks(part.output_image()).zip(whole.chunks(geometry.output_image())) {
                prop_assert_eq!(bits(y), bits(&whole[channels.start * plane..channels.end * plane]));
            }
        }
    }

    #[test]
    fn instructions_and_threads_do_not_show(case in cases(1..8), threads in 1..6usize) {
        let expected = all(SimdLevel::detected(), &case);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for &level in SimdLevel::available() {
            prop_assert_eq!(&expected, &pool.install(|| all(level, &case)));
        }
    }
}

#[test]
fn deep_and_large_convolutions_are_cut() {
    for (channels, size) in [([520, 96], [6, 6]), ([64, 64], [48, 48]), ([20, 64], [3, 150])] {
        let images = vec![Some(10), None, Some(20), Some(50), None];
        let case = Case { channels, size, padding: [1, 1], images, seed: 1 };
        let (level, geometry) = (SimdLevel::detected(), case.geometry());
        let whole = all(level, &case);
        let [from, to] = [geometry.input_image(), geometry.output_image()];
        let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        let mut dw = case.weight();
        for image in (0..5).rev() {
            let (x, dy) = (&x[image * from..][..from], &dy[image * to..][..to]);
            let y = forward_of(level, &geometry, x, &weight, &bias);
            assert_eq!(bits(&y), whole[0][image * to..][..to]);
            let dx = input_gradient_of(level, &geometry, dy, &weight);
            assert_eq!(bits(&dx), whole[1][image * from..][..from]);
            dw = weight_gradient_of(level, &geometry, x, dy, dw);
        }
        assert_eq!(bits(&dw), whole[2]);
        let half = of_channels(&geometry, channels[1] - 32);
        let k = channels[0] * 9 * 32;
        let y = forward_of(level, &half, &x, &weight[k..], &bias[32..]);
        for (y, whole) in y.chunks(half.output_image()).zip(whole[0].chunks(to)) {
            assert_eq!(bits(y), whole[32 * geometry.output_plane()..]);
        }
    }
}
