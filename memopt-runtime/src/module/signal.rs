//! What flows between parts.

use crate::{Error, Result};
use candle_core::Tensor;

/// A tensor `[T, N, ...]`, or several signals.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Signal {
    /// One tensor, time first.
    Dense(Tensor),
    /// Several inputs or outputs.
    Tuple(Vec<Signal>),
}

impl Signal {
    /// The tensor of a part that takes one.
    ///
    /// # Errors
    /// If it is a tuple; `part` is named in the error.
    pub fn into_dense(self, part: &str) -> Result<Tensor> {
        match self {
            Signal::Dense(tensor) => Ok(tensor),
            Signal::Tuple(signals) => Err(Error::SignalKind { part: part.to_owned(), got: signals.len() }),
        }
    }

    /// Its form, without the tensors.
    pub(crate) fn form(&self) -> Form {
        match self {
            Signal::Dense(_) => Form::Dense,
            Signal::Tuple(signals) => Form::Tuple(signals.iter().map(Signal::form).collect()),
        }
    }

    /// All tensors in it, in order.
    pub fn into_tensors(self) -> Vec<Tensor> {
        match self {
            Signal::Dense(tensor) => vec![tensor],
            Signal::Tuple(signals) => signals.into_iter().flat_map(Signal::into_tensors).collect(),
        }
    }
}

impl From<Tensor> for Signal {
    fn from(tensor: Tensor) -> Self {
        Signal::Dense(tensor)
    }
}

impl From<&Tensor> for Signal {
    fn from(tensor: &Tensor) -> Self {
        Signal::Dense(tensor.clone())
    }
}

/// How tensors make up a signal.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    Dense,
    Tuple(Vec<Form>),
}

impl Form {
    /// The signal of this form with these tensors, in order; `None` if there are too few.
    pub(crate) fn signal(&self, tensors: &mut impl Iterator<Item = Tensor>) -> Option<Signal> {
        match self {
            Form::Dense => tensors.next().map(Signal::Dense),
            Form::Tuple(forms) => {
                forms.iter().map(|form| form.signal(tensors)).collect::<Option<_>>().map(Signal::Tuple)
            }
        }
    }
}
