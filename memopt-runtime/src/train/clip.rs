//! Clipping of gradients.

use super::gradients::Gradients;
use super::piece;
use crate::nn::element::Real;
use crate::nn::reduce::sum;
use crate::{Error, Result};
use candle_core::CpuStorage;
use serde::{Deserialize, Serialize};

/// How gradients are clipped before a step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Clip {
    /// They are not.
    #[default]
    Never,
    /// To a norm over all parameters of at most so much: [`clip_by_global_norm`].
    GlobalNorm(f64),
    /// Each element to at most so much either way: [`clip_by_value`].
    Value(f64),
}

impl Clip {
    /// # Errors
    /// If the limit is no finite number above 0.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Clip::Never => Ok(()),
            Clip::GlobalNorm(limit) | Clip::Value(limit) => check_limit(limit),
        }
    }

    /// Clips finite gradients whose norm is known.
    pub(super) fn apply(self, gradients: &mut Gradients, norm: f64) -> bool {
        match self {
            Clip::Never => false,
            Clip::GlobalNorm(limit) => scale_to(gradients, norm, limit),
            Clip::Value(limit) => clamp(gradients, limit),
        }
    }
}

/// What a clipping did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clipped {
    /// The global norm before.
    pub norm: f64,
    /// Whether anything was changed.
    pub clipped: bool,
}

/// The norm of all gradients together, `sqrt(sum g^2)`.
///
/// Formed in f64, in one order whatever the number of threads. A weight that is used several times counts once, by the sum of
/// its gradients. An element that is not finite makes it NaN or infinite; large finite ones do not.
pub fn global_norm(gradients: &Gradients) -> f64 {
    let norm = scaled_norm(gradients, 1.);
    if norm.is_finite() || !gradients.is_finite() {
        return norm;
    }
    // Squares of f64 gradients can be infinite.
    let largest = largest(gradients);
    largest * scaled_norm(gradients, largest)
}

/// The norm of the gradients, each divided by a number.
fn scaled_norm(gradients: &Gradients, by: f64) -> f64 {
    fn squares<R: Real>(values: &[R], by: f64) -> f64 {
        let of = |values: &[R]| match by == 1. {
            true => sum(values.len(), |i| values[i].to_f64() * values[i].to_f64()),
            false => sum(values.len(), |i| (values[i].to_f64() / by).powi(2)),
        };
        piece::map(values, of).into_iter().sum()
    }
    let of = |buffer: &CpuStorage| match buffer {
        CpuStorage::F32(values) => squares(values, by),
        CpuStorage::F64(values) => squares(values, by),
        _ => 0.,
    };
    gradients.buffers().map(of).sum::<f64>().sqrt()
}

fn largest(gradients: &Gradients) -> f64 {
    fn of<R: Real>(values: &[R]) -> f64 {
        values.iter().fold(0f64, |largest, value| largest.max(value.to_f64().abs()))
    }
    let of = |buffer: &CpuStorage| match buffer {
        CpuStorage::F32(values) => of(values),
        CpuStorage::F64(values) => of(values),
        _ => 0.,
    };
    gradients.buffers().map(of).fold(0., f64::max)
}

/// Makes the global norm at most `limit`: `g = g min(1, limit / (norm + 1e-6))`, as in PyTorch.
///
/// # Errors
/// If the limit is no finite number above 0, or the norm is not finite; then the gradients are as they were.
///
/// ```
/// use candle_core::{Device, Var};
/// use memopt_runtime::train::{clip_by_global_norm, global_norm, Gradients, NamedParameters};
///
/// let w = Var::new(&[3f32, 4.], &Device::Cpu)?;
/// let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())])?;
/// let mut gradients = Gradients::new(&parameters, w.sqr()?.sum_all()?.backward()?)?;
/// let clipped = clip_by_global_norm(&mut gradients, 1.)?;
/// assert_eq!((clipped.norm, clipped.clipped), (10., true));
/// assert!((global_norm(&gradients) - 1.).abs() < 1e-6);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub fn clip_by_global_norm(gradients: &mut Gradients, limit: f64) -> Result<Clipped> {
    check_limit(limit)?;
    let norm = global_norm(gradients);
    if !norm.is_finite() {
        let what = format!("the global norm is {norm}; skip the step, as `Accumulator` does");
        return Err(Error::Training { part: "clipping".into(), what });
    }
    Ok(Clipped { norm, clipped: scale_to(gradients, norm, limit) })
}

/// Makes each element at most `limit` and at least `-limit`.
///
/// # Errors
/// If the limit is no finite number above 0, or an element is not finite; then the gradients are as they were.
pub fn clip_by_value(gradients: &mut Gradients, limit: f64) -> Result<Clipped> {
    check_limit(limit)?;
    let norm = global_norm(gradients);
    if !norm.is_finite() {
        let what = "an element of the gradients is not finite; skip the step, as `Accumulator` does".into();
        return Err(Error::Training { part: "clipping".into(), what });
    }
    Ok(Clipped { norm, clipped: clamp(gradients, limit) })
}

fn check_limit(limit: f64) -> Result<()> {
    match limit.is_finite() && limit > 0. {
        true => Ok(()),
        false => {
            let what = format!("the limit is {limit}; a finite number above 0 expected");
            Err(Error::Training { part: "clipping".into(), what })
        }
    }
}

fn scale_to(gradients: &mut Gradients, norm: f64, limit: f64) -> bool {
    let factor = limit / (norm + 1e-6);
    if factor < 1. {
        gradients.multiply(factor);
    }
    factor < 1.
}

fn clamp(gradients: &mut Gradients, limit: f64) -> bool {
    fn all<R: Real>(values: &mut [R], limit: f64) -> bool {
        let limit = R::from_f64(limit);
        let is_beyond = |value: &R| value.abs() > limit;
        let clipped = piece::map(values, |values| values.iter().any(is_beyond)).into_iter().any(|any| any);
        if clipped {
            piece::each(values, |values| {
                for value in values.iter_mut().filter(|value| is_beyond(value)) {
                    *value = if *value > R::ZERO { limit } else { -limit };
                }
            });
        }
        clipped
    }
    let of = |clipped, buffer: &mut CpuStorage| match buffer {
        CpuStorage::F32(values) => all(values, limit) || clipped,
        CpuStorage::F64(values) => all(values, limit) || clipped,
        _ => clipped,
    };
    gradients.buffers_mut().fold(false, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::NamedParameters;
    use candle_core::{DType, Device, Tensor, Var};

    /// Gradients that are these values.
    fn gradients(parts: &[Vec<f64>], dtype: DType) -> Gradients {
        let named: Vec<(String, Tensor)> = (0..parts.len())
            .map(|i| (i.to_string(), Var::zeros(parts[i].len(), dtype, &Device::Cpu).unwrap().into_inner()))
            .collect();
        let parameters = NamedParameters::new(named.clone()).unwrap();
        let mut store = Tensor::zeros((), DType::F32, &Device::Cpu).unwrap().backward().unwrap();
        for ((_, variable), values) in named.iter().zip(parts) {
            let gradient = Tensor::new(values.as_slice(), &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
            store.insert(variable, gradient);
        }
        Gradients::new(&parameters, store).unwrap()
    }

    fn values(gradients: &Gradients, name: &str) -> Vec<f64> {
        gradients.get(name).unwrap().unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
    }

    #[test]
    fn the_norm_is_over_all_parameters_and_does_not_depend_on_threads() {
        let long: Vec<f64> = (0..100_000).map(|i| f64::from((i * 7919) % 1000) / 1000. - 0.5).collect();
        let expected = (long.iter().map(|&x| f64::from(x as f32).powi(2)).sum::<f64>() + 25.).sqrt();
        let norms: Vec<u64> = [1, 2, 5]
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| global_norm(&gradients(&[long.clone(), vec![3., -4.]], DType::F32))).to_bits()
            })
            .to_vec();
        assert!((f64::from_bits(norms[0]) / expected - 1.).abs() < 1e-12);
        assert!(norms.iter().all(|norm| *norm == norms[0]));
    }

    #[test]
    fn large_gradients_have_a_finite_norm() {
        let mut large = gradients(&[vec![3e200, 4e200]], DType::F64);
        assert!((global_norm(&large) / 5e200 - 1.).abs() < 1e-12);
        assert!(clip_by_global_norm(&mut large, 1.).unwrap().clipped);
        assert!((values(&large, "0")[1] - 0.8).abs() < 1e-12);
    }

    #[test]
    fn small_gradients_are_left_alone() {
        let mut small = gradients(&[vec![0.3, -0.4]], DType::F64);
        assert_eq!(clip_by_global_norm(&mut small, 0.6).unwrap(), Clipped { norm: 0.5, clipped: false });
        assert_eq!(clip_by_value(&mut small, 0.4).unwrap(), Clipped { norm: 0.5, clipped: false });
        assert_eq!(values(&small, "0"), [0.3, -0.4]);
    }

    #[test]
    fn by_value_each_element_is_clipped() {
        let mut large = gradients(&[vec![3., -0.25], vec![-9., 0.5, f64::MIN_POSITIVE]], DType::F64);
        assert!(clip_by_value(&mut large, 0.5).unwrap().clipped);
        assert_eq!(
            (values(&large, "0"), values(&large, "1")),
            (vec![0.5, -0.25], vec![-0.5, 0.5, f64::MIN_POSITIVE])
        );
    }

    #[test]
    fn what_is_not_finite_is_refused_and_left_as_it_was() {
        for bad in [f64::NAN, f64::INFINITY] {
            let mut bad = gradients(&[vec![1., 7.], vec![bad]], DType::F32);
            assert!(matches!(clip_by_global_norm(&mut bad, 1.), Err(Error::Training { .. })));
            assert!(matches!(clip_by_value(&mut bad, 1.), Err(Error::Training { .. })));
            assert_eq!(values(&bad, "0"), [1., 7.]);
        }
        for limit in [0., -1., f64::NAN, f64::INFINITY] {
            assert!(clip_by_global_norm(&mut gradients(&[vec![1.]], DType::F32), limit).is_err());
            assert!(Clip::Value(limit).check().is_err());
        }
    }
}
