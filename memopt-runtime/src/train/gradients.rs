//! Gradients by parameter, in buffers that can be written over.

use super::parameters::{NamedParameters, Parameter};
use super::{piece, real_dtype};
use crate::nn::element::{Element, Real};
use crate::{storage, Error, Result};
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, Tensor};
use std::fmt;

/// The gradients of parameters: for each a buffer of its own in the type that is computed in (f32; f64 for f64), or none.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use memopt_runtime::train::{Gradients, NamedParameters};
///
/// let (w, unused) = (Var::new(&[1f32, 2.], &Device::Cpu)?, Var::new(&[3f32], &Device::Cpu)?);
/// let parameters = NamedParameters::of(&vec![w.as_tensor().clone(), unused.as_tensor().clone()])?;
/// let gradients = Gradients::new(&parameters, w.sqr()?.sum_all()?.backward()?)?;
/// assert_eq!(gradients.get("0")?.unwrap().to_vec1::<f32>()?, [2., 4.]);
/// assert!(gradients.get("1")?.is_none());
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
pub struct Gradients {
    parameters: NamedParameters,
    buffers: Vec<Option<CpuStorage>>,
}

impl Gradients {
    /// The gradients that Candle's backward left. What it left of other tensors is dropped first.
    ///
    /// # Errors
    /// If a gradient does not fit its parameter.
    pub fn new(parameters: &NamedParameters, store: GradStore) -> Result<Self> {
        let mut gradients = Self::none(parameters);
        gradients.add(store, 1.)?;
        Ok(gradients)
    }

    /// No gradients.
    pub(super) fn none(parameters: &NamedParameters) -> Self {
        Gradients { parameters: parameters.clone(), buffers: parameters.iter().map(|_| None).collect() }
    }

    /// Whose gradients they are.
    pub fn parameters(&self) -> &NamedParameters {
        &self.parameters
    }

    /// A copy of the gradient of the parameter of this name; `None`: it has none.
    ///
    /// # Errors
    /// If there is no such parameter.
    pub fn get(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(place) = self.parameters.position(name) else {
            return Err(Error::Parameter {
                name: name.to_owned(),
                what: "there is none of this name".into(),
            });
        };
        let found = self.iter().nth(place);
        Ok(found.and_then(|(parameter, buffer)| Some(tensor_of(parameter, buffer?))))
    }

    /// Names of the parameters that have none.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.iter().filter(|(_, buffer)| buffer.is_none());
        missing.map(|(parameter, _)| parameter.name().to_owned()).collect()
    }

    /// Whether no parameter has one.
    pub fn is_empty(&self) -> bool {
        self.buffers.iter().all(Option::is_none)
    }

    /// Bytes of the buffers.
    pub fn bytes(&self) -> usize {
        let bytes = |b: &CpuStorage| storage::len(b) * storage::dtype(b).size_in_bytes();
        self.buffers.iter().flatten().map(bytes).sum()
    }

    /// The parameters with their buffers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Parameter, Option<&CpuStorage>)> {
        self.parameters.iter().zip(self.buffers.iter().map(Option::as_ref))
    }

    /// The buffers that there are, in order.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &CpuStorage> {
        self.buffers.iter().flatten()
    }

    /// The buffers that there are, in order, to be written over.
    pub(super) fn buffers_mut(&mut self) -> impl Iterator<Item = &mut CpuStorage> {
        self.buffers.iter_mut().flatten()
    }

    /// The place for each parameter's buffer, in order.
    pub(super) fn places_mut(&mut self) -> impl Iterator<Item = &mut Option<CpuStorage>> {
        self.buffers.iter_mut()
    }

    /// `self += weight * gradient`, in place. All of them are checked before one is added.
    pub(super) fn add(&mut self, mut store: GradStore, weight: f64) -> Result<()> {
        let found: Vec<Option<Tensor>> = self.parameters.iter().map(|p| store.remove(p.tensor())).collect();
        // Gradients of what is no parameter are let go before anything is allocated.
        drop(store);
        for (parameter, gradient) in self.parameters.iter().zip(&found) {
            gradient.as_ref().map_or(Ok(()), |gradient| check(parameter, gradient))?;
        }
        for ((parameter, to), gradient) in self.parameters.iter().zip(&mut self.buffers).zip(found) {
            let (Some(gradient), Some(dtype)) = (gradient, real_dtype(parameter.tensor().dtype())) else {
                continue;
            };
            let gradient = gradient.to_dtype(dtype)?.contiguous()?;
            match to {
                Some(to) => add_to(to, &gradient, weight)?,
                // A copy: what backward leaves may share its storage.
                None => {
                    let mut buffer = storage::owned(&gradient)?;
                    multiply(&mut buffer, weight);
                    *to = Some(buffer);
                }
            }
        }
        Ok(())
    }

    /// Multiplies all by a factor, in place.
    pub(super) fn multiply(&mut self, factor: f64) {
        self.buffers_mut().for_each(|buffer| multiply(buffer, factor));
    }

    /// Whether all elements are finite.
    pub fn is_finite(&self) -> bool {
        fn all<R: Real>(values: &[R]) -> bool {
            piece::map(values, |values| values.iter().all(|value| value.is_finite()))
                .into_iter()
                .all(|all| all)
        }
        self.buffers().all(|buffer| match buffer {
            CpuStorage::F32(values) => all(values),
            CpuStorage::F64(values) => all(values),
            _ => true,
        })
    }
}

/// Names and sizes; there may be millions of elements.
impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = |buffer: Option<&CpuStorage>| buffer.map(storage::len);
        f.debug_map().entries(self.iter().map(|(parameter, buffer)| (parameter.name(), len(buffer)))).finish()
    }
}

/// A copy of a buffer as a tensor of a parameter's shape.
pub(super) fn tensor_of(parameter: &Parameter, buffer: &CpuStorage) -> Tensor {
    storage::into_tensor(storage::part(buffer, 0..storage::len(buffer)), parameter.dims(), false)
}

fn check(parameter: &Parameter, gradient: &Tensor) -> Result<()> {
    let error = |what| Err(Error::Parameter { name: parameter.name().to_owned(), what });
    if gradient.dims() != parameter.dims() {
        let (expected, got) = (parameter.dims(), gradient.dims());
        return error(format!("its gradient is {got:?}, and it is {expected:?}"));
    }
    if !gradient.device().is_cpu() || !gradient.dtype().is_float() {
        let dtype = gradient.dtype().as_str();
        return error(format!(
            "a gradient of floats on the CPU expected, one of {dtype} on {:?} given",
            gradient.device()
        ));
    }
    Ok(())
}

/// `to += weight * gradient`.
fn add_to(to: &mut CpuStorage, gradient: &Tensor, weight: f64) -> Result<()> {
    fn add<R: Real>(to: &mut [R], from: &[R], weight: f64) {
        let weight = R::from_f64(weight);
        piece::each_of_both(to, from, |to, from| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += *from * weight);
        });
    }
    fn add_tensor<R: Real>(to: &mut [R], gradient: &Tensor, weight: f64) -> Option<()> {
        storage::with_cpu(gradient, |from, layout| {
            let from = <R as Element>::slice(from)?.get(storage::range(layout)?)?;
            add(to, from, weight);
            Some(())
        })?
    }
    let added = match to {
        CpuStorage::F32(to) => add_tensor(to, gradient, weight),
        CpuStorage::F64(to) => add_tensor(to, gradient, weight),
        _ => None,
    };
    added.ok_or_else(|| Error::Training {
        part: "gradients".into(),
        what: "contiguous f32 or f64 on the CPU expected".into(),
    })
}

/// `values *= factor`; nothing is touched by a factor of 1.
fn multiply(values: &mut CpuStorage, factor: f64) {
    fn all<R: Real>(values: &mut [R], factor: f64) {
        let factor = R::from_f64(factor);
        piece::each(values, |values| values.iter_mut().for_each(|value| *value *= factor));
    }
    match values {
        _ if factor == 1. => {}
        CpuStorage::F32(values) => all(values, factor),
        CpuStorage::F64(values) => all(values, factor),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Var};

    fn store(loss: &Tensor) -> GradStore {
        loss.backward().unwrap()
    }

    #[test]
    fn weighted_gradients_add_up_in_place() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let w = Var::ones((2, 3), dtype, &Device::Cpu).unwrap();
            let parameters = NamedParameters::new([("w".to_owned(), w.as_tensor().clone())]).unwrap();
            let mut sums = Gradients::none(&parameters);
            assert!(sums.is_empty() && sums.bytes() == 0 && sums.missing() == ["w"]);
            sums.add(store(&w.sqr().unwrap().sum_all().unwrap()), 1.).unwrap();
            sums.add(store(&w.sum_all().unwrap()), 0.5).unwrap();
            let sum = sums.get("w").unwrap().unwrap();
            assert_eq!(sum.dtype(), if dtype == DType::F64 { DType::F64 } else { DType::F32 });
            let sum = sum.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
            assert_eq!(sum, [2.5; 6]);
            assert!(sums.is_finite());
            sums.multiply(f64::INFINITY);
            assert!(!sums.is_finite());
        }
    }

    /// Two parameters whose gradients backward left in one storage.
    #[test]
    fn gradients_that_share_a_storage_do_not_share_a_buffer() {
        let [a, b] = [0f32, 1.].map(|x| Var::new(&[x, x], &Device::Cpu).unwrap());
        let named = [("a", &a), ("b", &b)].map(|(name, v)| (name.to_owned(), v.as_tensor().clone()));
        let parameters = NamedParameters::new(named).unwrap();
        let shared = Tensor::new(&[1f32, 2.], &Device::Cpu).unwrap();
        let mut left = store(&Tensor::zeros((), DType::F32, &Device::Cpu).unwrap());
        left.insert(&a, shared.clone());
        left.insert(&b, shared.clone());
        let mut gradients = Gradients::new(&parameters, left).unwrap();
        gradients.multiply(3.);
        assert_eq!(gradients.get("b").unwrap().unwrap().to_vec1::<f32>().unwrap(), [3., 6.]);
        assert_eq!(shared.to_vec1::<f32>().unwrap(), [1., 2.]);
    }

    #[test]
    fn a_gradient_of_another_shape_is_refused_and_nothing_is_added() {
        let [a, b] = [0f32, 1.].map(|x| Var::new(&[x, x], &Device::Cpu).unwrap());
        let named = [("a", &a), ("b", &b)].map(|(name, v)| (name.to_owned(), v.as_tensor().clone()));
        let mut gradients = Gradients::none(&NamedParameters::new(named).unwrap());
        let mut left = store(&a.sum_all().unwrap());
        left.insert(&b, Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap());
        let error = gradients.add(left, 1.).unwrap_err();
        assert!(matches!(&error, Error::Parameter { name, .. } if name == "b"), "{error}");
        assert!(gradients.is_empty());
        assert!(matches!(gradients.get("c"), Err(Error::Parameter { .. })));
    }
}
