//! Named tensors of a saved state, taken out one by one.

use crate::{Error, Result};
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeMap;

/// A state that is being loaded. Each tensor is taken once; what is left at the end is foreign.
pub(super) struct Loading {
    owner: String,
    tensors: BTreeMap<String, Tensor>,
}

impl Loading {
    /// # Errors
    /// If two tensors have one name.
    pub fn new(owner: &str, state: &[(String, Tensor)]) -> Result<Self> {
        let mut loading = Loading { owner: owner.to_owned(), tensors: BTreeMap::new() };
        for (name, tensor) in state {
            if loading.tensors.insert(name.clone(), tensor.clone()).is_some() {
                return Err(loading.wrong(name, "is there twice".into()));
            }
        }
        Ok(loading)
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn take(&mut self, name: &str) -> Result<Tensor> {
        let missing = || Error::StateMissing { owner: self.owner.clone(), name: name.to_owned() };
        self.tensors.remove(name).ok_or_else(missing)
    }

    /// The contiguous tensor of this name, of this shape and dtype, on the CPU.
    pub fn take_like(&mut self, name: &str, dims: &[usize], dtype: DType) -> Result<Tensor> {
        let tensor = self.take(name)?;
        if tensor.dims() != dims || tensor.dtype() != dtype {
            let (got, expected) = (tensor.dtype().as_str(), dtype.as_str());
            return Err(
                self.wrong(name, format!("is {:?} of {got}; {dims:?} of {expected} expected", tensor.dims()))
            );
        }
        Ok(tensor.to_device(&Device::Cpu)?.contiguous()?)
    }

    /// The count of this name.
    pub fn take_count(&mut self, name: &str) -> Result<u64> {
        let count = self.take_like(name, &[], DType::I64)?.to_scalar::<i64>()?;
        u64::try_from(count)
            .map_err(|_| self.wrong(name, format!("is {count}; a count of at least 0 expected")))
    }

    /// The number of this name.
    pub fn take_number(&mut self, name: &str) -> Result<f64> {
        Ok(self.take_like(name, &[], DType::F64)?.to_scalar()?)
    }

    /// What has names that begin with a prefix, without it.
    pub fn take_all_with(&mut self, prefix: &str) -> Vec<(String, Tensor)> {
        let names: Vec<String> =
            self.tensors.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        let take = |name: String| Some((name.strip_prefix(prefix)?.to_owned(), self.tensors.remove(&name)?));
        names.into_iter().filter_map(take).collect()
    }

    /// # Errors
    /// If something is left.
    pub fn finish(self) -> Result<()> {
        match self.tensors.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(Error::StateForeign { owner: self.owner, name }),
        }
    }

    /// The error for a tensor that does not fit.
    pub fn wrong(&self, name: &str, what: String) -> Error {
        Error::StateTensor { owner: self.owner.clone(), name: name.to_owned(), what }
    }
}

/// A count as a tensor.
pub(super) fn count(value: u64) -> Result<Tensor> {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    Ok(Tensor::from_vec(vec![value], (), &Device::Cpu)?)
}

/// A number as a tensor, to the last bit.
pub(super) fn number(value: f64) -> Result<Tensor> {
    Ok(Tensor::from_vec(vec![value], (), &Device::Cpu)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_what_was_given_and_the_rest_is_foreign() {
        let state = vec![
            ("a".to_owned(), count(7).unwrap()),
            ("b".to_owned(), number(0.1).unwrap()),
            ("c.d".to_owned(), number(2.).unwrap()),
        ];
        let mut loading = Loading::new("it", &state).unwrap();
        assert_eq!(loading.take_count("a").unwrap(), 7);
        assert!(matches!(loading.take("a"), Err(Error::StateMissing { name, .. }) if name == "a"));
        assert!(matches!(loading.take_count("b"), Err(Error::StateTensor { name, .. }) if name == "b"));
        assert_eq!(loading.take_all_with("c.").len(), 1);
        loading.finish().unwrap();
        let loading = Loading::new("it", &state).unwrap();
        assert!(matches!(loading.finish(), Err(Error::StateForeign { name, .. }) if name == "a"));
        let twice = [state.clone(), state].concat();
        assert!(matches!(Loading::new("it", &twice), Err(Error::StateTensor { .. })));
    }
}
