//! Kernels of 1x1: exact, and the same bits however images and output channels are cut.

use super::{bits, forward_of, weight_gradient_of, Random};
use crate::compress::kernels::SimdLevel;
use crate::nn::conv::config::ConvConfig;
use crate::nn::conv::geometry::Geometry;
use half::bf16;
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Case {
    geometry: Geometry,
    /// Percent of ones of each image; `None` for other values.
    images: Vec<Option<u32>>,
    seed: u64,
}

fn geometry([inputs, outputs]: [usize; 2], size: [usize; 2]) -> Geometry {
    Geometry::new(&ConvConfig::<2>::default(), &[outputs, inputs, 1, 1], inputs, &size).unwrap()
}

impl Case {
    fn x(&self) -> Vec<f32> {
        let mut random = Random(self.seed);
        let mut x = Vec::new();
        for percent in &self.images {
            x.extend((0..self.geometry.input_image()).map(|_| match percent {
                Some(percent) => f32::from(u8::from(random.unit() * 100. < f64::from(*percent))),
                None => random.normal(),
            }));
        }
        x
    }

    fn normal(&self, key: u64, len: usize) -> Vec<f32> {
        let mut random = Random(self.seed ^ key << 40);
        (0..len).map(|_| random.normal()).collect()
    }

    fn dy(&self) -> Vec<f32> {
        self.normal(1, self.images.len() * self.geometry.output_image())
    }

    fn weight(&self) -> Vec<f32> {
        self.normal(2, self.geometry.inputs * self.geometry.outputs)
    }

    fn bias(&self) -> Vec<f32> {
        self.normal(3, self.geometry.outputs)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let percent = prop::sample::select(vec![None, Some(0), Some(5), Some(10), Some(80)]);
    let size = [1..13usize, 1..14usize];
    (28..150usize, 1..80usize, size, prop::collection::vec(percent, 1..5), any::<u32>()).prop_map(
        |(inputs, outputs, size, images, seed)| Case {
            geometry: geometry([inputs, outputs], size),
            images,
            seed: seed.into(),
        },
    )
}

/// Output and gradient of the weight.
fn both(level: SimdLevel, case: &Case) -> [Vec<u32>; 2] {
    let (geometry, x) = (&case.geometry, case.x());
    let y = forward_of(level, geometry, &x, &case.weight(), &case.bias());
    let dw = weight_gradient_of(level, geometry, &x, &case.dy(), case.weight());
    [y, dw].map(|values| bits(&values))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn products_are_exact(case in cases()) {
        let Geometry { inputs, outputs, .. } = case.geometry;
        let plane = case.geometry.output_plane();
        let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        let y = forward_of(SimdLevel::detected(), &case.geometry, &x, &weight, &bias);
        let dw = weight_gradient_of(SimdLevel::detected(), &case.geometry, &x, &dy, vec![0.; weight.len()]);
        let wide = |value: f32| f64::from(value);
        for (index, y) in y.iter().enumerate() {
            let (image, output, pixel) = (index / plane / outputs, index / plane % outputs, index % plane);
            let term = |input: usize| {
                wide(weight[output * inputs + input]) * wide(x[(image * inputs + input) * plane + pixel])
            };
            let exact = wide(bias[output]) + (0..inputs).map(term).sum::<f64>();
            prop_assert!((wide(*y) - exact).abs() < 1e-4, "{} {}", y, exact);
        }
        for (index, dw) in dw.iter().enumerate() {
            let (output, input) = (index / inputs, index % inputs);
            let term = |at: usize| {
                let (image, pixel) = (at / plane, at % plane);
                wide(x[(image * inputs + input) * plane + pixel]) * wide(dy[(image * outputs + output) * plane + pixel])
            };
            let exact = (0..case.images.len() * plane).map(term).sum::<f64>();
            prop_assert!((wide(*dw) - exact).abs() < 1e-4, "{} {}", dw, exact);
        }
    }

    #[test]
    fn instructions_and_threads_do_not_show(case in cases(), threads in 1..5usize) {
        let expected = both(SimdLevel::detected(), &case);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for &level in SimdLevel::available() {
            prop_assert_eq!(&expected, &pool.install(|| both(level, &case)));
        }
    }

    #[test]
    fn images_and_output_channels_may_be_cut(case in cases()) {
        let (level, geometry) = (SimdLevel::detected(), case.geometry);
        let (from, to, plane) = (geometry.input_image(), geometry.output_image(), geometry.output_plane());
        let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        let whole = both(level, &case);
        let mut dw = case.weight();
        for image in (0..case.images.len()).rev() {
            let (x, dy) = (&x[image * from..][..from], &dy[image * to..][..to]);
            let y = forward_of(level, &geometry, x, &weight, &bias);
            prop_assert_eq!(&bits(&y), &whole[0][image * to..][..to]);
            for start in (0..geometry.outputs).step_by(32) {
                let part = Geometry { outputs: (geometry.outputs - start).min(32), ..geometry };
                let weight = &weight[start * geometry.inputs..][..part.outputs * geometry.inputs];
                let group = forward_of(level, &part, x, weight, &bias[start..][..part.outputs]);
                prop_assert_eq!(bits(&group), bits(&y[start * plane..][..part.output_image()]));
            }
            dw = weight_gradient_of(level, &geometry, x, dy, dw);
        }
        prop_assert_eq!(&bits(&dw), &whole[1]);
    }
}

/// Images whose bits do not exist at the same time: those of a single pixel take a word for each channel.
#[test]
fn rounds_of_images_do_not_show() {
    let images = [Some(10), Some(10), None, Some(0)].repeat(35);
    let case = Case { geometry: geometry([4096, 20], [1, 1]), images, seed: 11 };
    let (level, geometry, x, dy) = (SimdLevel::detected(), &case.geometry, case.x(), case.dy());
    let (mut y, mut dw) = (Vec::new(), case.weight());
    for x in x.chunks(4096) {
        y.extend(forward_of(level, geometry, x, &case.weight(), &case.bias()));
    }
    for (x, dy) in x.chunks(4096).zip(dy.chunks(20)).rev() {
        dw = weight_gradient_of(level, geometry, x, dy, dw);
    }
    assert!(both(level, &case) == [bits(&y), bits(&dw)]);
}

#[test]
fn values_that_are_not_finite_are_not_hidden() {
    let case = Case { geometry: geometry([40, 70], [3, 5]), images: vec![Some(10), None, Some(0)], seed: 3 };
    for &level in SimdLevel::available() {
        let mut weight = case.weight();
        weight[40 * 40 + 7] = f32::INFINITY;
        let y = forward_of(level, &case.geometry, &case.x(), &weight, &case.bias());
        for (index, y) in y.iter().enumerate() {
            assert_eq!(y.is_finite(), index / 15 % 70 != 40, "{index}");
        }
        let mut dy = case.dy();
        dy[2 * case.geometry.output_image() + 33 * 15 + 4] = f32::NAN;
        let dw = weight_gradient_of(level, &case.geometry, &case.x(), &dy, case.weight());
        for (index, dw) in dw.iter().enumerate() {
            assert_eq!(dw.is_finite(), index / 40 != 33, "{index}");
        }
    }
}

/// bf16 is computed in f32 and rounded once.
#[test]
fn half_precision_is_rounded_once() {
    let case = Case { geometry: geometry([40, 40], [6, 7]), images: vec![Some(10), None], seed: 5 };
    let half = |values: &[f32]| values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let single = |values: &[bf16]| values.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let (x, dy, level) = (half(&case.x()), half(&case.dy()), SimdLevel::detected());
    let y = forward_of(level, &case.geometry, &single(&x), &case.weight(), &case.bias());
    assert_eq!(forward_of(level, &case.geometry, &x, &case.weight(), &case.bias()), half(&y));
    let dw = weight_gradient_of(level, &case.geometry, &single(&x), &single(&dy), case.weight());
    assert_eq!(weight_gradient_of(level, &case.geometry, &x, &dy, case.weight()), dw);
}
