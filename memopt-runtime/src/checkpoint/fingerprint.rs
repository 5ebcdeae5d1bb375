//! What a first pass read and gave, to be held against the recompute.

use super::versions::Watch;
use crate::autograd::Age;
use crate::storage::checksum;
use crate::{Error, Result};
use candle_core::{DType, DeviceLocation, Shape, Tensor};

pub(super) struct Fingerprint {
    /// What the recompute will read: captured variables, and inputs that are variables.
    variables: Vec<(Tensor, Watch)>,
    /// The variables that the first pass reached, but for those that it made itself.
    reached: Vec<Tensor>,
    outputs: Vec<(Shape, DType, DeviceLocation)>,
    /// Of the variables and of the outputs, if verified.
    checksums: Option<(Vec<u64>, Vec<u64>)>,
}

impl Fingerprint {
    pub(super) fn of(
        outputs: &[Tensor],
        watched: Vec<Tensor>,
        reached: Vec<Tensor>,
        since: Age,
        verify: bool,
    ) -> Result<Self> {
        let checksums = match verify {
            true => Some((checksums(&watched)?, checksums(outputs)?)),
            false => None,
        };
        let watch = |variable: Tensor| {
            let watch = Watch::new(&variable);
            (variable, watch)
        };
        Ok(Fingerprint {
            variables: watched.into_iter().map(watch).collect(),
            reached: reached.into_iter().filter(|v| Age::of(v.id()) < since).collect(),
            outputs: outputs.iter().map(form).collect(),
            checksums,
        })
    }

    /// Whether the recompute will read what the first pass read.
    pub(super) fn check_variables(&self, segment: &str) -> Result<()> {
        let mut changed = self.variables.iter().position(|(_, watch)| watch.has_changed());
        if let (None, Some((then, _))) = (changed, &self.checksums) {
            let now = self.variables.iter().map(|(v, _)| Ok(checksum(v)?)).collect::<Result<Vec<_>>>()?;
            changed = now.iter().zip(then).position(|(now, then)| now != then);
        }
        match changed {
            Some(index) => Err(Error::WeightsChanged {
                segment: segment.to_owned(),
                shape: self.variables[index].0.shape().clone(),
            }),
            None => Ok(()),
        }
    }

    /// Whether it gave what the first pass gave.
    pub(super) fn check_outputs(&self, segment: &str, outputs: &[Tensor]) -> Result<()> {
        let differs = |what| Err(Error::RecomputeDiffers { segment: segment.to_owned(), what });
        if outputs.len() != self.outputs.len() {
            return differs(format!("{} outputs, where it gave {} first", outputs.len(), self.outputs.len()));
        }
        for (index, (output, then)) in outputs.iter().zip(&self.outputs).enumerate() {
            let now = form(output);
            if &now != then {
                return differs(format!("output {index} is {now:?}, where it was {then:?} first"));
            }
        }
        if let Some((_, then)) = &self.checksums {
            if let Some(index) = checksums(outputs)?.iter().zip(then).position(|(now, then)| now != then) {
                return differs(format!("output {index} has other values"));
            }
        }
        Ok(())
    }

    /// Whether it reached every variable that the first pass reached.
    pub(super) fn check_reached(&self, segment: &str, now: &[Tensor]) -> Result<()> {
        match self.reached.iter().find(|then| now.iter().all(|v| v.id() != then.id())) {
            Some(lost) => Err(Error::RecomputeDiffers {
                segment: segment.to_owned(),
                what: format!(
                    "it does not reach a variable of shape {:?} that the first pass did",
                    lost.shape()
                ),
            }),
            None => Ok(()),
        }
    }
}

fn form(tensor: &Tensor) -> (Shape, DType, DeviceLocation) {
    (tensor.shape().clone(), tensor.dtype(), tensor.device().location())
}

fn checksums(tensors: &[Tensor]) -> Result<Vec<u64>> {
    Ok(tensors.iter().map(checksum).collect::<candle_core::Result<_>>()?)
}
