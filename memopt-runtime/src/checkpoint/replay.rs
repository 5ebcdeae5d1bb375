//! The recompute: run the code again on what was kept, and go back through it.

use super::fingerprint::Fingerprint;
use super::segment::stranger_in_recompute;
use super::weights::Weights;
use crate::arrangement::Arrangement;
use crate::autograd::{backward_from, reached, Age, Gradient, Reached};
use crate::compress::{Leaf, Packed};
use crate::inside::Recompute;
use crate::memory::{self, Held};
use crate::module::Signal;
use crate::panics::caught;
use crate::{Error, Phase, Result};
use candle_core::{Tensor, TensorId};
use std::ops::Range;

/// What a segment keeps for backward.
pub(super) struct Kept {
    pub(super) segment: String,
    pub(super) packed: Vec<Packed>,
    /// Which inputs need a gradient.
    pub(super) tracked: Vec<bool>,
    /// The variables that get one.
    pub(super) variables: Vec<Tensor>,
    /// When the first pass began.
    pub(super) since: Age,
    pub(super) fingerprint: Fingerprint,
    pub(super) held: Held,
    pub(super) weights: Weights,
}

/// The code run again as a whole: the gradients of the inputs, then of the variables.
pub(super) fn backward<F>(kept: Kept, f: F, gradients: Vec<Option<Gradient>>) -> Result<Vec<Option<Gradient>>>
where
    F: Fn(&[Tensor]) -> candle_core::Result<Vec<Tensor>>,
{
    let Kept { segment, packed, tracked, variables, since, fingerprint, held, weights } = kept;
    fingerprint.check_variables(&segment)?;
    let again = Age::now()?;
    let mut inputs = Vec::with_capacity(packed.len());
    let mut leaves: Vec<Option<Leaf>> = Vec::with_capacity(packed.len());
    for (packed, tracked) in packed.into_iter().zip(tracked) {
        // What was kept goes as soon as it is unpacked.
        let unpack = || match tracked {
            true => packed.into_leaf().map(|(x, leaf)| (x, Some(leaf))),
            false => packed.unpack().map(|x| (x, None)),
        };
        let (x, leaf) = in_recompute(&segment, unpack)?;
        inputs.push(x);
        leaves.push(leaf);
    }
    drop(held);
    let outputs = in_recompute(&segment, || Ok(f(&inputs)?))?;
    drop((f, inputs));
    fingerprint.check_outputs(&segment, &outputs)?;
    let Reached { variables: now, older } = reached(&outputs, again);
    if let Some(stranger) = older {
        return Err(stranger_in_recompute(&segment, stranger, since));
    }
    fingerprint.check_reached(&segment, &now)?;
    check_known(&segment, &now, variables.iter().chain(weights.ghost()), again)?;

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
        answers.push(leaf.map_or(Ok(None), |leaf| leaf.gradient())?);
    }
    for variable in &variables {
        answers.push(weights.gradient(variable, store.remove(variable).map(Gradient::from))?);
    }
    drop((store, fingerprint));
    memory::mark_with(|| format!("{segment}: backward"));
    Ok(answers)
}

/// The input of a segment of chunks, and what is wanted of it.
pub(super) struct Chunks<'a> {
    pub(super) input: KeptInput,
    pub(super) gradient: Gradient,
    /// Whether the input's gradient is wanted.
    pub(super) is_tracked: bool,
    pub(super) variables: &'a [Tensor],
}

/// The input as it was kept.
pub(super) struct KeptInput {
    packed: Packed,
    segment: String,
    _held: Held,
}

impl KeptInput {
    /// The input again.
    pub(super) fn unpack(&self) -> Result<Tensor> {
        in_recompute(&self.segment, || self.packed.unpack())
    }

    /// The input again: packed, if it is kept as spikes, else contiguous.
    pub(super) fn signal(&self) -> Result<Signal> {
        match self.packed.spikes() {
            Some(spikes) => Ok(spikes.into()),
            None => Ok(self.unpack()?.contiguous()?.into()),
        }
    }

    /// Some time steps of the input again; `None` where there is no way to have them but all of it.
    pub(super) fn unpack_steps(&self, steps: Range<usize>) -> Result<Option<Tensor>> {
        in_recompute(&self.segment, || self.packed.unpack_steps(steps))
    }

    /// The input some time steps at a time, unpacked when they are wanted; at once, where there is no other way.
    pub(super) fn in_steps(self) -> Result<InputSteps> {
        match self.unpack_steps(0..1)? {
            Some(_) => Ok(InputSteps::Kept(self)),
            None => Ok(InputSteps::Unpacked(self.unpack()?)),
        }
    }

    /// Shape of the input.
    pub(super) fn dims(&self) -> &[usize] {
        self.packed.shape().dims()
    }

    /// Bytes of the input's elements.
    pub(super) fn bytes(&self) -> usize {
        self.packed.raw_bytes()
    }

    /// The input as a leaf of a graph; what was kept goes.
    pub(super) fn into_leaf(self) -> Result<(Tensor, Leaf)> {
        in_recompute(&self.segment, || self.packed.into_leaf())
    }
}

/// The input of a segment, some time steps at a time.
pub(super) enum InputSteps {
    Kept(KeptInput),
    Unpacked(Tensor),
}

impl InputSteps {
    /// Number of time steps.
    pub(super) fn steps(&self) -> usize {
        let dims = match self {
            InputSteps::Kept(input) => input.dims(),
            InputSteps::Unpacked(x) => x.dims(),
        };
        dims.first().copied().unwrap_or_default()
    }

    /// Some time steps, contiguous.
    pub(super) fn at(&self, steps: &Range<usize>) -> Result<Tensor> {
        match self {
            InputSteps::Kept(input) => input.unpack_steps(steps.clone())?.ok_or_else(|| {
                candle_core::Error::Msg("a packed input lost some of its time steps".into()).into()
            }),
            InputSteps::Unpacked(x) => Ok(x.narrow(0, steps.start, steps.len())?.contiguous()?),
        }
    }
}

/// Code that goes chunk by chunk: `back` gives the gradient of the input, and for each variable what is in the graph and
/// not in the layers' own sums.
pub(super) fn in_chunks(
    kept: Kept,
    mut gradients: Vec<Option<Gradient>>,
    back: impl FnOnce(Chunks<'_>) -> Result<(Option<Gradient>, Vec<Option<Gradient>>)>,
) -> Result<Vec<Option<Gradient>>> {
    let Kept { segment, packed, tracked, variables, fingerprint, held, weights, .. } = kept;
    fingerprint.check_variables(&segment)?;
    let Some((gradient, packed)) = gradients.pop().flatten().zip(packed.into_iter().next()) else {
        return Ok(std::iter::repeat_with(|| None).take(1 + variables.len()).collect());
    };
    let input = KeptInput { packed, segment: segment.clone(), _held: held };
    let chunks =
        Chunks { input, gradient, is_tracked: tracked.first() == Some(&true), variables: &variables };
    let (dx, in_graph) = caught(&segment, Phase::Backward, || back(chunks))
        .map_err(|e| e.in_segment(&segment, Phase::Backward))?;
    let mut answers = vec![dx];
    for (variable, in_graph) in variables.iter().zip(in_graph) {
        answers.push(weights.gradient(variable, in_graph)?);
    }
    drop(fingerprint);
    memory::mark_with(|| format!("{segment}: backward"));
    Ok(answers)
}

/// Runs a part of the recompute; its errors and panics name the segment.
pub(super) fn in_recompute<T>(segment: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _recompute = Recompute::begin();
    caught(segment, Phase::Recompute, f).map_err(|e| e.in_segment(segment, Phase::Recompute))
}

/// A variable that only the recompute reaches would lose its gradient.
fn check_known<'a>(
    segment: &str,
    now: &[Tensor],
    variables: impl Iterator<Item = &'a Tensor>,
    again: Age,
) -> Result<()> {
    let variables: Vec<TensorId> = variables.map(Tensor::id).collect();
    // The leaves are newer, and so are variables that the code makes for itself each time.
    let known = |v: &&Tensor| Age::of(v.id()) > again || variables.contains(&v.id());
    match now.iter().find(|v| !known(v)) {
        Some(v) => Err(Error::RecomputeDiffers {
            segment: segment.to_owned(),
            what: format!("it reaches a variable of shape {:?} that the first pass did not", v.shape()),
        }),
        None => Ok(()),
    }
}
