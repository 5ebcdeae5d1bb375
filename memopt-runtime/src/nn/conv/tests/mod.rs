//! Exactness and bits of the kernels.

mod bits;
mod exactness;
mod masks;
mod packed;
mod pointwise;
mod products;
mod unusual;
mod weight_tiles;

use super::config::ConvConfig;
use super::geometry::Geometry;
use super::images::Images;
use super::{backward, forward};
use crate::compress::kernels::{self, SimdLevel};
use crate::nn::element::Element;

/// Sizes of a convolution, and what its images hold.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub channels: [usize; 2],
    pub size: [usize; 2],
    pub padding: [usize; 2],
    /// Percent of ones of each image; `None` for normal values.
    pub images: Vec<Option<u32>>,
    pub seed: u64,
}

impl Case {
    pub fn geometry(&self) -> Geometry {
        let config = ConvConfig::<2>::default().padding(self.padding);
        let [inputs, outputs] = self.channels;
        Geometry::new(&config, &[outputs, inputs, 3, 3], inputs, &self.size).unwrap()
    }

    pub fn x(&self) -> Vec<f32> {
        let mut random = Random(self.seed);
        let image = self.geometry().input_image();
        let mut x = Vec::new();
        for &percent in &self.images {
            x.extend((0..image).map(|_| match percent {
                Some(percent) => f32::from(u8::from(random.unit() * 100. < f64::from(percent))),
                None => random.normal(),
            }));
        }
        x
    }

    pub fn dy(&self) -> Vec<f32> {
        let mut random = Random(self.seed ^ 1 << 40);
        (0..self.images.len() * self.geometry().output_image()).map(|_| random.normal()).collect()
    }

    pub fn weight(&self) -> Vec<f32> {
        let mut random = Random(self.seed ^ 2 << 40);
        (0..self.channels[0] * self.channels[1] * 9).map(|_| random.normal() / 8.).collect()
    }

    pub fn bias(&self) -> Vec<f32> {
        let mut random = Random(self.seed ^ 3 << 40);
        (0..self.channels[1]).map(|_| random.normal()).collect()
    }
}

/// Numbers from a seed.
pub(super) struct Random(pub u64);

impl Random {
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal: mean 0, variance 1.
    pub fn normal(&mut self) -> f32 {
        ((0..6).map(|_| self.unit()).sum::<f64>() - 3.) as f32 * 1.4
    }
}

pub(super) fn forward_of<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: &[E],
    weight: &[E::Real],
    bias: &[E::Real],
) -> Vec<E> {
    let images = x.len() / geometry.input_image();
    let mut y = vec![<E as Element>::ZERO; images * geometry.output_image()];
    let x = Images::of_floats(x, geometry.input_image());
    forward::forward(level, geometry, x, weight, Some(bias), &mut y).unwrap();
    y
}

pub(super) fn weight_gradient_of<E: Element + kernels::Element>(
    level: SimdLevel,
    geometry: &Geometry,
    x: &[E],
    dy: &[E],
    mut to: Vec<E::Real>,
) -> Vec<E::Real> {
    let x = Images::of_floats(x, geometry.input_image());
    backward::add_weight_gradient(level, geometry, x, dy, &mut to).unwrap();
    to
}

pub(super) fn input_gradient_of<E: Element>(
    level: SimdLevel,
    geometry: &Geometry,
    dy: &[E],
    weight: &[E::Real],
) -> Vec<E> {
    backward::input_gradient(level, geometry, weight, dy.to_vec()).unwrap()
}

/// The bits of each element.
pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Output, gradient of the input and gradient of the weight, in f64 and one element after the other.
pub(super) fn naive(
    geometry: &Geometry,
    x: &[f64],
    dy: &[f64],
    weight: &[f64],
    bias: &[f64],
) -> [Vec<f64>; 3] {
    let Geometry { inputs, outputs, from, to, .. } = *geometry;
    assert_eq!(bias.len(), outputs);
    let mut y = vec![0.; dy.len()];
    let mut dx = vec![0.; x.len()];
    let mut dw = vec![0.; weight.len()];
    for image in 0..x.len() / geometry.input_image() {
        for (output, bias) in bias.iter().enumerate() {
            for (row, column) in (0..to[0]).flat_map(|row| (0..to[1]).map(move |column| (row, column))) {
                let place = ((image * outputs + output) * to[0] + row) * to[1] + column;
                y[place] += bias;
                for input in 0..inputs {
                    for tap in 0..9 {
                        let at = (row + tap / 3).wrapping_sub(geometry.padding[0]);
                        let across = (column + tap % 3).wrapping_sub(geometry.padding[1]);
                        if at < from[0] && across < from[1] {
                            let source = ((image * inputs + input) * from[0] + at) * from[1] + across;
                            let w = (output * inputs + input) * 9 + tap;
                            y[place] += weight[w] * x[source];
                            dx[source] += weight[w] * dy[place];
                            dw[w] += x[source] * dy[place];
                        }
                    }
                }
            }
        }
    }
    [y, dx, dw]
}
