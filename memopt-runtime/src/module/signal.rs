//! What flows between parts.

use crate::compress::PackedSpikes;
use crate::{Error, Result};
use candle_core::Tensor;

/// A tensor `[T, N, ...]`, or several signals.
///
/// Every layer takes spikes that are packed: where it has no kernel for bits, [`Signal::into_dense`] unpacks them. Executors
/// give them to layers whose input they kept as bits; a first pass does not see them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Signal {
    /// One tensor, time first.
    Dense(Tensor),
    /// Spikes as bits, time first. No gradient goes back to them.
    Packed(PackedSpikes),
    /// Several inputs or outputs.
    Tuple(Vec<Signal>),
}

impl Signal {
    /// The tensor of a part that takes one; spikes are unpacked.
    ///
    /// # Errors
    /// If it is a tuple; `part` is named in the error.
    pub fn into_dense(self, part: &str) -> Result<Tensor> {
        match self {
            Signal::Dense(tensor) => Ok(tensor),
            Signal::Packed(spikes) => spikes.unpack(),
            Signal::Tuple(signals) => Err(Error::SignalKind { part: part.to_owned(), got: signals.len() }),
        }
    }

    /// Its form, without the tensors.
    pub(crate) fn form(&self) -> Form {
        match self {
            Signal::Dense(_) | Signal::Packed(_) => Form::Dense,
            Signal::Tuple(signals) => Form::Tuple(signals.iter().map(Signal::form).collect()),
        }
    }

    /// All tensors in it, in order; spikes are unpacked.
    ///
    /// # Errors
    /// If spikes cannot be unpacked.
    pub fn into_tensors(self) -> Result<Vec<Tensor>> {
        Ok(match self {
            Signal::Dense(tensor) => vec![tensor],
            Signal::Packed(spikes) => vec![spikes.unpack()?],
            Signal::Tuple(signals) => {
                let tensors: Result<Vec<_>> = signals.into_iter().map(Signal::into_tensors).collect();
                tensors?.into_iter().flatten().collect()
            }
        })
    }

    /// The same signal with nothing packed.
    ///
    /// # Errors
    /// If spikes cannot be unpacked.
    pub fn unpacked(self) -> Result<Signal> {
        Ok(match self {
            Signal::Dense(tensor) => Signal::Dense(tensor),
            Signal::Packed(spikes) => Signal::Dense(spikes.unpack()?),
            Signal::Tuple(signals) => {
                Signal::Tuple(signals.into_iter().map(Signal::unpacked).collect::<Result<_>>()?)
            }
        })
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

impl From<PackedSpikes> for Signal {
    fn from(spikes: PackedSpikes) -> Self {
        Signal::Packed(spikes)
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
