//! What a search looks at: inputs as training has them.

use super::cost::CostTable;
use super::measure;
use super::options::{wrong, Options};
use super::trace::{merge, trace, Traced};
use crate::module::{Checkpointable, Signal};
use crate::Result;
use candle_core::Tensor;

/// One or several sample inputs, or none.
#[derive(Debug, Clone, Default)]
pub struct Sample(Vec<Signal>);

impl Sample {
    /// No sample: what needs one falls back or is refused.
    pub fn none() -> Self {
        Self::default()
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that a step is run with.
    pub(super) fn first(&self) -> Option<&Signal> {
        self.0.first()
    }

    /// Bytes of one.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |x: &Tensor| x.elem_count() * x.dtype().size_in_bytes();
        let tensors = self.first().and_then(|x| x.clone().into_tensors().ok()).unwrap_or_default();
        tensors.iter().map(bytes).sum()
    }

    /// What they show of a model; `None`: there is none.
    ///
    /// # Errors
    /// If one does not fit the model, or they are of different shapes.
    pub(super) fn look<M: Checkpointable>(
        &self,
        model: &M,
        options: &Options,
        costs: &CostTable,
    ) -> Result<Option<Traced>> {
        let mut traced = together(options, self.trace(model, costs))?;
        if let (Some(traced), true) = (&mut traced, options.measure_costs) {
            options.tell("timing the layers");
            let mut times = together(options, measure::times(traced))?;
            if let Some(agreement) = &options.agreement {
                times = agreement.largest(&times)?;
            }
            measure::set_paces(traced, costs, &times);
        }
        Ok(traced)
    }

    fn trace<M: Checkpointable>(&self, model: &M, costs: &CostTable) -> Result<Option<Traced>> {
        let Some((first, others)) = self.0.split_first() else { return Ok(None) };
        let form = form(first)?;
        let mut traced = trace(model, first, costs.threads())?;
        for (index, other) in others.iter().enumerate() {
            let other_form = self::form(other)?;
            if other_form != form {
                return Err(wrong(format!(
                    "sample {} is {other_form}, the first one {form}; give samples of one shape and type",
                    index + 2
                )));
            }
            merge(&mut traced.nodes, &trace(model, other, costs.threads())?.nodes);
        }
        Ok(Some(traced))
    }

    /// The same where a sample is needed.
    ///
    /// # Errors
    /// Also if there is none.
    pub(super) fn must_look<M: Checkpointable>(
        &self,
        model: &M,
        options: &Options,
        costs: &CostTable,
        what: &str,
    ) -> Result<Traced> {
        let none = || wrong(format!("{what} needs a sample input; give one"));
        self.look(model, options, costs)?.ok_or_else(none)
    }
}

/// In a group of processes, an error of one is an error of all: none waits for one that has given up.
///
/// # Errors
/// The own one, or that another process has one.
pub(super) fn together<T>(options: &Options, own: Result<T>) -> Result<T> {
    let failed = options.largest_of_group(own.is_err().into())?;
    match own {
        Ok(_) if failed > 0 => {
            Err(wrong("another process of the group found no plan; its own error says why".into()))
        }
        own => own,
    }
}

/// Dimensions and types, as words.
fn form(x: &Signal) -> Result<String> {
    let tensors = x.clone().into_tensors()?;
    let all: Vec<String> = tensors.iter().map(|x| format!("{:?} of {:?}", x.dims(), x.dtype())).collect();
    Ok(all.join(" and "))
}

impl From<&Tensor> for Sample {
    fn from(x: &Tensor) -> Self {
        Sample(vec![x.into()])
    }
}

impl From<Signal> for Sample {
    fn from(x: Signal) -> Self {
        Sample(vec![x])
    }
}

/// Several inputs, each of the same shape: an encoding is chosen that holds all of them.
impl From<&[Tensor]> for Sample {
    fn from(all: &[Tensor]) -> Self {
        Sample(all.iter().map(Signal::from).collect())
    }
}
