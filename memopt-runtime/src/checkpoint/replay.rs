//! The recompute: run the code again on what was kept, and go back through it.

use super::fingerprint::Fingerprint;
use super::first_pass::Recompute;
use super::segment::stranger_in_recompute;
use crate::arrangement::Arrangement;
use crate::autograd::{backward_from, reached, Age, Gradient, Reached};
use crate::compress::{Leaf, Packed};
use crate::memory::{self, Held};
use crate::panics::caught;
use crate::{Error, Phase, Result};
use candle_core::Tensor;

/// What a segment keeps for backward.
pub(super) struct Replay<F> {
    pub(super) segment: String,
    pub(super) f: F,
    pub(super) packed: Vec<Packed>,
    /// Which inputs need a gradient.
    pub(super) tracked: Vec<bool>,
    /// The variables that get one.
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
        fingerprint.check_variables(&segment)?;
        let again = Age::now()?;
        let mut inputs = Vec::with_capacity(packed.len());
        let mut leaves: Vec<Option<Leaf>> = Vec::with_capacity(packed.len());
        for (packed, tracked) in packed.into_iter().zip(tracked) {
            // What was kept goes as soon as it is unpacked.
            let unpack = || match tracked {
                true => packed.into_leaf().map(|leaf| (leaf.tensor.clone(), Some(leaf))),
                false => packed.unpack().map(|x| (x, None)),
            };
            let (x, leaf) = caught(&segment, Phase::Recompute, unpack)
                .map_err(|e| e.in_segment(&segment, Phase::Recompute))?;
            inputs.push(x);
            leaves.push(leaf);
        }
        drop(held);
        let outputs = {
            let _recompute = Recompute::begin();
            caught(&segment, Phase::Recompute, || Ok(f(&inputs)?))
                .map_err(|e| e.in_segment(&segment, Phase::Recompute))?
        };
        drop((f, inputs));
        fingerprint.check_outputs(&segment, &outputs)?;
        let Reached { variables: now, older } = reached(&outputs, again);
        if let Some(stranger) = older {
            return Err(stranger_in_recompute(&segment, stranger, since));
        }
        fingerprint.check_reached(&segment, &now)?;
        check_known(&segment, &now, &variables, again)?;

        let mut roots = Vec::with_capacity(outputs.len());
        for (output, gradient) in outputs.into_iter().zip(gradients) {
            if let Some(gradient) = gradient {
                // The function's output is the compact form.
                roots.push((Arrangement::of(output.layout()).compact(&output)?, gradient));
            }
        }
        let mut store = caught(&segment, Phase::Backward, || backward_from(roots))
            .map_err(|e| e.in_segment(&segment, Phase::Backward))?;
        let mut answers = Vec::with_capacity(leaves.len() + variables.len());
        for leaf in leaves {
            let gradient = leaf.and_then(|leaf| store.remove(&leaf.leaf).map(|g| leaf.gradient(&g.detach())));
            answers.push(gradient.transpose()?.map(Gradient::from));
        }
        answers.extend(variables.iter().map(|v| store.remove(v).map(Gradient::from)));
        drop((store, fingerprint));
        memory::mark_with(|| format!("{segment}: backward"));
        Ok(answers)
    }
}

/// A variable that only the recompute reaches would lose its gradient.
fn check_known(segment: &str, now: &[Tensor], variables: &[Tensor], again: Age) -> Result<()> {
    // The leaves are newer, and so are variables that the code makes for itself each time.
    let known = |v: &&Tensor| Age::of(v.id()) > again || variables.iter().any(|known| known.id() == v.id());
    match now.iter().find(|v| !known(v)) {
        Some(v) => Err(Error::RecomputeDiffers {
            segment: segment.to_owned(),
            what: format!("it reaches a variable of shape {:?} that the first pass did not", v.shape()),
        }),
        None => Ok(()),
    }
}
