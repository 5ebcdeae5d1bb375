//! The parameters that are trained, by name.

use crate::parameters::Parameters;
use crate::{Error, Result};
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use std::collections::HashMap;
use std::sync::Arc;

/// The variables that an optimizer moves, each with its name.
///
/// A weight that a model holds under several names is one parameter: it is stepped once, its norm counts once, and its
/// state is saved under the first of its names. Clones share the list.
///
/// ```
/// use candle_core::{DType, Device, Var};
/// use memopt_runtime::train::NamedParameters;
///
/// let w = Var::ones(3, DType::F32, &Device::Cpu)?;
/// let tied = vec![w.as_tensor().clone(), w.as_tensor().clone()]; // a model that uses one weight twice
/// let parameters = NamedParameters::of(&tied)?;
/// assert_eq!(parameters.len(), 1);
/// assert_eq!(parameters.iter().next().unwrap().names(), ["0", "1"]);
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct NamedParameters(Arc<[Parameter]>);

/// A variable that is trained.
#[derive(Debug, Clone)]
pub struct Parameter {
    names: Vec<String>,
    tensor: Tensor,
}

impl Parameter {
    /// The first name under which the model holds it.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// All names under which the model holds it.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The variable.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Its size in each dimension.
    pub fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    fn error(&self, what: impl Into<String>) -> Error {
        Error::Parameter { name: self.name().to_owned(), what: what.into() }
    }

    /// An error unless its elements can be written over.
    fn check(&self) -> Result<()> {
        if !self.tensor.is_variable() {
            return Err(self.error(
                "it is computed from variables and cannot be stepped; hold the variable itself, and compute in the forward",
            ));
        }
        if !self.tensor.dtype().is_float() || super::real_dtype(self.tensor.dtype()).is_none() {
            let dtype = self.tensor.dtype().as_str();
            return Err(self.error(format!("f32, f64, bf16 or f16 expected, {dtype} given")));
        }
        if !self.tensor.device().is_cpu() {
            let function = format!("parameter `{}`", self.name());
            return Err(Error::UnsupportedDevice { function, what: "the optimizers' step".into() });
        }
        if !self.tensor.is_contiguous() {
            return Err(
                self.error("its elements do not lie in row-major order; make the variable of `contiguous()`")
            );
        }
        Ok(())
    }
}

impl NamedParameters {
    /// The parameters of a model, in the order of declaration, named by their paths. (Of a planned or optimized model:
    /// `NamedParameters::of(&*net)`.)
    ///
    /// # Errors
    /// If one is not a variable, not a float, or not on the CPU.
    pub fn of<M: Parameters>(model: &M) -> Result<Self> {
        Self::new(crate::parameters::parameters(model))
    }

    /// The variables of a map, by name. Running statistics are among them: no gradient reaches them, and they stay as
    /// they are.
    ///
    /// # Errors
    /// Those of [`of`](Self::of), and if a panic left the map locked.
    pub fn of_variables(variables: &VarMap) -> Result<Self> {
        let all = by_name(variables).map_err(wrong)?;
        Self::new(all.into_iter().map(|(name, variable)| (name, variable.as_tensor().clone())))
    }

    /// Named variables, in this order. One variable under several names is one parameter.
    ///
    /// # Errors
    /// Those of [`of`](Self::of); and if there are none, or one name is that of two variables.
    pub fn new(named: impl IntoIterator<Item = (String, Tensor)>) -> Result<Self> {
        let mut parameters: Vec<Parameter> = Vec::new();
        let mut places = HashMap::new();
        let mut ids = HashMap::new();
        for (name, tensor) in named {
            if let Some(other) = ids.insert(name.clone(), tensor.id()) {
                if other == tensor.id() {
                    continue;
                }
                let what = "two variables have this name; give each its own";
                return Err(Error::Parameter { name, what: what.into() });
            }
            match places.get(&tensor.id()).and_then(|&place: &usize| parameters.get_mut(place)) {
                Some(parameter) => parameter.names.push(name),
                None => {
                    places.insert(tensor.id(), parameters.len());
                    let parameter = Parameter { names: vec![name], tensor };
                    parameter.check()?;
                    parameters.push(parameter);
                }
            }
        }
        if parameters.is_empty() {
            return Err(wrong("there are none; a model of detached tensors has nothing to train"));
        }
        Ok(NamedParameters(parameters.into()))
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: there is at least one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parameters, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.0.iter()
    }

    /// Where a parameter of this name is in the order.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|parameter| parameter.names.iter().any(|own| own == name))
    }

    /// The variables themselves, in their order.
    pub(super) fn variables(&self) -> Result<Vec<Var>> {
        Ok(self.iter().map(|parameter| Var::from_tensor(&parameter.tensor)).collect::<Result<_, _>>()?)
    }

    /// Whether two lists are of the same variables, in the same order.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let ids = |list: &Self| list.iter().map(|p| p.tensor.id()).collect::<Vec<_>>();
        Arc::ptr_eq(&self.0, &other.0) || ids(self) == ids(other)
    }
}

/// The variables of a map in the order of their names: a hash map has another one in each run.
///
/// # Errors
/// What is wrong: a panic left the map locked.
pub(super) fn by_name(variables: &VarMap) -> std::result::Result<Vec<(String, Var)>, &'static str> {
    let data = variables.data().lock();
    let data = data.map_err(|_| "the variable map was left locked by a panic; make another one")?;
    let mut all: Vec<_> = data.iter().map(|(name, variable)| (name.clone(), variable.clone())).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

fn wrong(what: &str) -> Error {
    Error::Training { part: "parameters".into(), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    fn variable(dtype: DType) -> Tensor {
        Var::zeros(2, dtype, &Device::Cpu).unwrap().into_inner()
    }

    #[test]
    fn a_variable_under_two_names_is_one_parameter() {
        let (w, b) = (variable(DType::F32), variable(DType::F32));
        let named = [("a", &w), ("b", &b), ("c", &w)].map(|(name, t)| (name.to_owned(), t.clone()));
        let all = NamedParameters::new(named).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all.position("a"), all.position("c"), all.position("b")), (Some(0), Some(0), Some(1)));
        assert_eq!(all.position("d"), None);
    }

    #[test]
    fn what_cannot_be_trained_is_named() {
        let computed = (variable(DType::F32) * 2.).unwrap();
        for (tensor, says) in [(computed, "computed from variables"), (variable(DType::U8), "f32, f64")] {
            let error = NamedParameters::new([("w".to_owned(), tensor)]).unwrap_err();
            assert!(
                matches!(&error, Error::Parameter { name, what } if name == "w" && what.contains(says)),
                "{error}"
            );
        }
        let twice = [variable(DType::F32), variable(DType::F32)].map(|t| ("w".to_owned(), t));
        assert!(NamedParameters::new(twice).unwrap_err().to_string().contains("two variables"));
        assert!(matches!(NamedParameters::new([]), Err(Error::Training { .. })));
    }

    #[test]
    fn a_map_is_in_the_order_of_names() {
        let variables = VarMap::new();
        let vb = candle_nn::VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
        for name in ["c", "a", "b"] {
            vb.get_with_hints(1, name, candle_nn::Init::Const(0.)).unwrap();
        }
        let all = NamedParameters::of_variables(&variables).unwrap();
        assert_eq!(all.iter().map(Parameter::name).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
