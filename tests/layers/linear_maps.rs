//! Layers that are gone back through without their input: the bits of their own backward.

use super::common::{assert_same, Values};
use super::support::{run, training};
use candle_core::DType;
use memopt::autograd::Gradient;
use memopt::module::{Checkpointable, LinearMap, Part};
use memopt::nn::{AdaptiveAvgPool2d, AvgPool2d, Flatten, Lif, MaxPool2d};

fn check(layer: &impl Checkpointable, size: [usize; 2], dtype: DType) {
    let shape = [3, 2, 4, size[0], size[1]];
    let mut values = Values::new(2);
    let x = values.tensor(&shape, dtype).unwrap();
    let mut dy = None;
    let ran = run(layer, &x, |y| dy.insert(values.tensor(y.dims(), dtype).unwrap()).clone(), &mut training());
    let (map, dy) = (layer.linear_map().unwrap(), dy.unwrap());
    assert_eq!(map.output_dims(&shape).unwrap(), dy.dims());
    let dx = map.transposed(Gradient::from(dy), &shape).unwrap();
    assert_same(&dx.into_tensor(), &ran.dx);
}

#[test]
fn pools_by_means() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for size in [[6, 6], [7, 5], [2, 37]] {
            check(&AvgPool2d::new(2), size, dtype);
            check(&AvgPool2d::new((2, 3)).stride((1, 2)), [size[0], size[1].max(3)], dtype);
            check(&AdaptiveAvgPool2d::new((2, 3)), size, dtype);
            check(&Some(Box::new(AvgPool2d::new(2))), size, dtype);
        }
    }
}

#[test]
fn other_layers_are_none() {
    let is_none = |part: Part| part.linear_map().is_none();
    assert!(is_none(Part::of(&MaxPool2d::new(2))) && is_none(Part::of(&Lif::default())));
    // Candle's reshape adds its gradient to zeros, which is not the bits of a reshape.
    assert!(is_none(Part::of(&Flatten)) && is_none(Part::of(&None::<AvgPool2d>)));
    assert!(!is_none(Part::of(&AvgPool2d::new(2))));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let pool = AvgPool2d::new(2);
    let dy = || Gradient::from(Values::new(2).tensor(&[2, 1, 3, 2, 2], DType::F32).unwrap());
    assert!(pool.output_dims(&[2, 3, 4]).is_err() && pool.output_dims(&[2, 1, 3, 1, 4]).is_err());
    assert!(pool.transposed(dy(), &[2, 1, 3, 4, 4]).is_ok());
    for input in [&[2, 1, 3, 4, 6][..], &[2, 1, 2, 4, 4], &[2, 3, 4], &[2, 1, 3, 0, 4]] {
        let error = pool.transposed(dy(), input).unwrap_err().to_string();
        assert!(error.contains("AvgPool2d"), "{error}");
    }
}
