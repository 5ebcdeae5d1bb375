//! The recompute: run the closure again on what was kept, and go back through it.

use super::versions::versions_of;
use crate::autograd::{backward_from, reached, Age, Gradient, Reached};
use crate::compress::Packed;
use crate::memory::{self, Held};
use crate::panics::caught;
use crate::storage::checksum;
use crate::{Error, Phase, Result};
use candle_core::{DType, DeviceLocation, Shape, Tensor};

/// What a checkpointed closure keeps for backward.
pub(super) struct Replay<F> {
    pub(super) segment: String,
    pub(super) f: F,
    pub(super) packed: Vec<Packed>,
    /// Which inputs need a gradient.
    pub(super) tracked: Vec<bool>,
    /// The variables that the first pass reached.
    pub(super) variables: Vec<Tensor>,
    /// When the first pass began.
    pub(super) since: Age,
    pub(super) fingerprint: Fingerprint,
    pub(super) held: Held,
}

impl<F: Fn(&[Tensor]) -> candle_core::Result<Vec<Tensor>>> Replay<F> {
    /// The gradients of the inputs, then of the variables.
    pub(super) fn backward(self, gradients: Vec<Option<Gradient>>) -> Result<Vec<Option<Gradient>>> {
        let Replay { segment, f, packed, tracked, variables, since, fingerprint, held } = self;
        fingerprint.check_variables(&segment, &variables)?;
        let mut inputs = Vec::with_capacity(packed.len());
        let mut leaves = Vec::with_capacity(packed.len());
        for (packed, tracked) in packed.iter().zip(&tracked) {
            if *tracked {
                let (x, leaf) = packed.unpack_tracked()?;
                inputs.push(x);
                leaves.push(Some(leaf));
            } else {
                inputs.push(packed.unpack()?);
                leaves.push(None);
            }
        }
        let again = Age::now()?;
        let outputs = caught(&segment, Phase::Recompute, || Ok(f(&inputs)?))
            .map_err(|e| e.in_segment(&segment, Phase::Recompute))?;
        drop((f, inputs));
        fingerprint.check_outputs(&segment, &outputs)?;
        check_reached(&segment, &outputs, &leaves, &variables, since, again)?;

        let roots: Vec<(Tensor, Gradient)> = outputs
            .into_iter()
            .zip(gradients)
            .filter_map(|(output, gradient)| gradient.map(|gradient| (output, gradient)))
            .collect();
        let mut store = caught(&segment, Phase::Backward, || backward_from(roots))
            .map_err(|e| e.in_segment(&segment, Phase::Backward))?;
        let mut answers = Vec::with_capacity(leaves.len() + variables.len());
        for (packed, leaf) in packed.iter().zip(leaves) {
            let gradient = leaf.and_then(|leaf| store.remove(&leaf));
            answers.push(gradient.map(|g| packed.gradient_of(&g.detach())).transpose()?.map(Gradient::from));
        }
        answers.extend(variables.iter().map(|v| store.remove(v).map(Gradient::from)));
        drop((store, packed, held));
        memory::mark_with(|| format!("{segment}: backward"));
        Ok(answers)
    }
}

/// A variable that only the recompute reaches would lose its gradient, as would a tensor that it captures.
fn check_reached(
    segment: &str,
    outputs: &[Tensor],
    leaves: &[Option<Tensor>],
    variables: &[Tensor],
    since: Age,
    again: Age,
) -> Result<()> {
    let Reached { variables: now, older } = reached(outputs, since);
    let known = |v: &Tensor| {
        let mut ours = variables.iter().chain(leaves.iter().flatten());
        // Variables that the closure makes for itself, each time, are nobody's.
        ours.any(|known| known.id() == v.id()) || Age::of(v.id()) > again
    };
    if let Some(v) = now.iter().find(|v| !known(v)) {
        return Err(Error::RecomputeDiffers {
            segment: segment.to_owned(),
            what: format!("it reaches a variable of shape {:?} that the first pass did not", v.shape()),
        });
    }
    match older {
        Some(captured) => Err(Error::CapturedActivation {
            segment: segment.to_owned(),
            shape: captured.shape().clone(),
            dtype: captured.dtype(),
        }),
        None => Ok(()),
    }
}

/// What the first pass read and gave, to be held against the recompute.
pub(super) struct Fingerprint {
    versions: Vec<u64>,
    outputs: Vec<(Shape, DType, DeviceLocation)>,
    /// Of the variables and of the outputs, if verified.
    checksums: Option<(Vec<u64>, Vec<u64>)>,
}

impl Fingerprint {
    pub(super) fn of(outputs: &[Tensor], variables: &[Tensor], verify: bool) -> Result<Self> {
        let checksums = match verify {
            true => Some((checksums(variables)?, checksums(outputs)?)),
            false => None,
        };
        Ok(Fingerprint {
            versions: versions_of(variables),
            outputs: outputs.iter().map(form).collect(),
            checksums,
        })
    }

    fn check_variables(&self, segment: &str, variables: &[Tensor]) -> Result<()> {
        let versions = versions_of(variables);
        let mut changed = versions.iter().zip(&self.versions).position(|(now, then)| now != then);
        if let (None, Some((then, _))) = (changed, &self.checksums) {
            changed = checksums(variables)?.iter().zip(then).position(|(now, then)| now != then);
        }
        match changed {
            Some(index) => Err(Error::WeightsChanged {
                segment: segment.to_owned(),
                shape: variables[index].shape().clone(),
            }),
            None => Ok(()),
        }
    }

    fn check_outputs(&self, segment: &str, outputs: &[Tensor]) -> Result<()> {
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
}

fn form(tensor: &Tensor) -> (Shape, DType, DeviceLocation) {
    (tensor.shape().clone(), tensor.dtype(), tensor.device().location())
}

fn checksums(tensors: &[Tensor]) -> Result<Vec<u64>> {
    Ok(tensors.iter().map(checksum).collect::<candle_core::Result<_>>()?)
}
