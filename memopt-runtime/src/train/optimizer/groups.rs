//! Parameters with options of their own.

use super::config::{at_least_zero, wrong};
use crate::train::{NamedParameters, Parameter};
use crate::Result;
use std::fmt;
use std::sync::Arc;

/// Options of those parameters that a predicate chooses; a parameter is of the first group that chooses it.
///
/// ```
/// use candle_core::{DType, Device};
/// use candle_nn::VarMap;
/// use memopt_runtime::nn::{init::seeded, BatchNorm, Linear};
/// use memopt_runtime::train::{AdamW, AdamWConfig, NamedParameters, ParameterGroup};
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let net = (Linear::new(3, 4, Default::default(), vb.pp("fc"))?, BatchNorm::new(4, Default::default(), vb.pp("bn"))?);
/// // Biases, and weights and biases of norms, are vectors: no weight decay on them.
/// let vectors = ParameterGroup::new(|parameter| parameter.dims().len() < 2).weight_decay(0.);
/// let config = AdamWConfig { weight_decay: 0.05, ..AdamWConfig::new(1e-3) };
/// let optimizer = AdamW::with_groups(&NamedParameters::of(&net)?, config, [vectors])?;
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct ParameterGroup {
    chooses: Arc<dyn Fn(&Parameter) -> bool + Send + Sync>,
    rate_factor: f64,
    weight_decay: Option<f64>,
}

impl ParameterGroup {
    /// The parameters that `chooses` says yes to, by name ([`Parameter::name`]) or shape.
    pub fn new(chooses: impl Fn(&Parameter) -> bool + Send + Sync + 'static) -> Self {
        ParameterGroup { chooses: Arc::new(chooses), rate_factor: 1., weight_decay: None }
    }

    /// Their weight decay, instead of the optimizer's.
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        ParameterGroup { weight_decay: Some(weight_decay), ..self }
    }

    /// Their learning rate is the optimizer's times this factor.
    pub fn rate_factor(self, factor: f64) -> Self {
        ParameterGroup { rate_factor: factor, ..self }
    }
}

impl fmt::Debug for ParameterGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParameterGroup { rate_factor, weight_decay, .. } = self;
        write!(f, "ParameterGroup {{ rate_factor: {rate_factor}, weight_decay: {weight_decay:?} }}")
    }
}

/// What a parameter has of its group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Chosen {
    pub(super) rate_factor: f64,
    pub(super) weight_decay: f64,
}

/// What is to be said of an optimizer: its numbers, and what parameters have of groups.
pub(super) fn configuration(
    kind: &str,
    numbers: &[(&str, f64)],
    weight_decay: f64,
    parameters: &NamedParameters,
    chosen: &[Chosen],
) -> Vec<(String, String)> {
    let mut all = vec![("kind".to_owned(), kind.to_owned())];
    all.extend(numbers.iter().map(|(name, value)| ((*name).to_owned(), format!("{value:?}"))));
    all.push(("weight_decay".to_owned(), format!("{weight_decay:?}")));
    for (parameter, chosen) in parameters.iter().zip(chosen) {
        let mut differs = |what: &str, own: f64, usual: f64| {
            if own != usual {
                all.push((format!("{what} of `{}`", parameter.name()), format!("{own:?}")));
            }
        };
        differs("weight_decay", chosen.weight_decay, weight_decay);
        differs("rate_factor", chosen.rate_factor, 1.);
    }
    all
}

/// What each parameter has, in order.
///
/// # Errors
/// If a group's numbers make no sense, or it chooses nothing.
pub(super) fn choose(
    part: &str,
    parameters: &NamedParameters,
    weight_decay: f64,
    groups: &[ParameterGroup],
) -> Result<Vec<Chosen>> {
    let mut sizes = vec![0; groups.len()];
    for group in groups {
        at_least_zero(part, "the rate factor of a group", group.rate_factor)?;
        at_least_zero(part, "the weight decay of a group", group.weight_decay.unwrap_or_default())?;
    }
    let mut choose = |parameter: &Parameter| match groups.iter().position(|group| (group.chooses)(parameter))
    {
        Some(place) => {
            sizes[place] += 1;
            let ParameterGroup { rate_factor, weight_decay: own, .. } = &groups[place];
            Chosen { rate_factor: *rate_factor, weight_decay: own.unwrap_or(weight_decay) }
        }
        None => Chosen { rate_factor: 1., weight_decay },
    };
    let chosen = parameters.iter().map(&mut choose).collect();
    match sizes.iter().position(|&size| size == 0) {
        None => Ok(chosen),
        Some(place) => Err(wrong(
            part,
            format!("the parameter group {place} chooses no parameter that those before it leave; see `NamedParameters::iter` for the names"),
        )),
    }
}
