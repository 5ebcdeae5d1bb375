//! The first pass: run the code, keep little, and tell the graph how to get the rest back.

use super::fingerprint::Fingerprint;
use super::inputs::Input;
use super::options::Options;
use super::outputs::Outputs;
use super::replay::{backward, Kept};
use super::weights::Weights;
use crate::arrangement::Arrangement;
use crate::autograd::{apply, reached, Age, Edge, Gradient, Output, Reached, Stranger};
use crate::compress::{self, Pack, Packed, SpikeCompressor};
use crate::inside::{self, FirstPass};
use crate::module::Context;
use crate::panics::caught;
use crate::{memory, storage, Error, Phase, Result};
use candle_core::Tensor;
use std::sync::Arc;

/// A segment before its first pass.
pub(super) struct Segment {
    options: Options,
    compressors: Vec<Arc<dyn SpikeCompressor>>,
    edges: Vec<Edge>,
    /// Inputs that are variables: who sets them sets what is kept.
    variables: Vec<Tensor>,
    /// Not tracked.
    inputs: Vec<Tensor>,
}

/// What a first pass gave.
pub(super) struct Ran {
    outputs: Vec<Tensor>,
    /// The variables that it reached.
    reached: Vec<Tensor>,
    /// Variables that it may have reached where the graph does not show it.
    others: Vec<Tensor>,
    /// Whether nobody else has the outputs' buffers, so that they need not be copied.
    pub(super) fresh: bool,
    /// When it began.
    since: Age,
    /// Where the layers of the recompute add up the gradients of their weights.
    pub(super) weights: Weights,
}

impl Segment {
    pub(super) fn new<I: Input>(inputs: &[I], options: Options) -> Result<Self> {
        let compressors = options.compressors_for(inputs.len())?;
        let mut segment = Segment { options, compressors, edges: vec![], variables: vec![], inputs: vec![] };
        for x in inputs.iter().map(Input::tensor) {
            if x.track_op() && !x.device().is_cpu() {
                return Err(Error::UnsupportedDevice {
                    function: segment.options.segment,
                    what: "a checkpointed segment".into(),
                });
            }
            let arrangement = Arrangement::of(x.layout());
            // A leaf has one gradient for an element, so that is what the edge is of.
            segment.edges.push(Edge::to(&arrangement.without_repetition(x)?));
            let input = x.detach();
            // A leaf cannot overlap itself. (Candle cannot go back through such a view either.)
            let needs_copy = x.track_op() && arrangement.overlaps();
            segment.inputs.push(if needs_copy { input.contiguous()? } else { input });
            if x.is_variable() {
                segment.variables.push(x.clone());
            }
        }
        Ok(segment)
    }

    /// Whether the recompute is verified by checksums.
    pub(super) fn verifies(&self) -> bool {
        self.options.verify
    }

    /// Runs the code for the first time.
    pub(super) fn run<O: Outputs>(&self, f: impl FnOnce(&[Tensor]) -> candle_core::Result<O>) -> Result<Ran> {
        let name = &self.options.segment;
        let since = Age::now()?;
        let outputs = {
            let _first_pass = FirstPass::begin();
            caught(name, Phase::Forward, || Ok(f(&self.inputs)?.into_tensors()))
                .map_err(|e| e.in_segment(name, Phase::Forward))?
        };
        let Reached { variables, older } = reached(&outputs, since);
        match older {
            Some(stranger) => Err(self.captures(stranger.shape, stranger.dtype)),
            None => {
                let weights = Weights::default();
                Ok(Ran { outputs, reached: variables, others: vec![], fresh: false, since, weights })
            }
        }
    }

    /// Adds a parameter of the code that runs through a detached twin, whose graph does not show it.
    pub(super) fn add_parameter(&self, ran: &mut Ran, parameter: Tensor) -> Result<()> {
        if !parameter.is_variable() {
            let (shape, dtype) = (parameter.shape().clone(), parameter.dtype());
            return Err(Error::ComputedParameter { segment: self.options.segment.clone(), shape, dtype });
        }
        if ran.others.iter().all(|known| known.id() != parameter.id()) {
            ran.others.push(parameter);
        }
        Ok(())
    }

    /// What a first pass through a detached twin still needs for its recompute: the parameters, and the weights added up
    /// in the accumulators of the segment around, or in its own.
    pub(super) fn adopt(
        &self,
        ran: &mut Ran,
        parameters: impl IntoIterator<Item = Tensor>,
        context: &Context,
    ) -> Result<()> {
        for parameter in parameters {
            self.add_parameter(ran, parameter)?;
        }
        ran.weights = Weights::inside(context.accumulators())?;
        Ok(())
    }

    fn captures(&self, shape: candle_core::Shape, dtype: candle_core::DType) -> Error {
        Error::CapturedActivation { segment: self.options.segment.clone(), shape, dtype }
    }

    /// Packs the inputs and makes the graph's function, whose backward runs `f` again.
    pub(super) fn seal<O: Outputs>(
        self,
        ran: Ran,
        f: impl Fn(&[Tensor]) -> candle_core::Result<Vec<Tensor>> + Send + 'static,
    ) -> Result<O> {
        self.seal_with(ran, move |kept, gradients| backward(kept, f, gradients))
    }

    /// Packs the inputs and makes the graph's function.
    pub(super) fn seal_with<O: Outputs>(
        self,
        ran: Ran,
        backward: impl FnOnce(Kept, Vec<Option<Gradient>>) -> Result<Vec<Option<Gradient>>> + Send + 'static,
    ) -> Result<O> {
        let Ran { outputs, reached, others, fresh, since, weights } = ran;
        let new = |v: &&Tensor| reached.iter().all(|known| known.id() != v.id());
        let variables: Vec<Tensor> = reached.iter().chain(others.iter().filter(new)).cloned().collect();
        let mut edges = self.edges;
        let segment = self.options.segment;
        if variables.is_empty() && !edges.iter().any(Edge::is_tracked) {
            return O::from_tensors(&segment, outputs);
        }
        let tracked: Vec<bool> = edges.iter().map(Edge::is_tracked).collect();
        edges.extend(variables.iter().map(Edge::to));
        let watched = variables.iter().chain(&self.variables).cloned().collect();
        // The graph of the first pass goes first, then one output after the other.
        let outputs: Vec<Tensor> = outputs.into_iter().map(|y| y.detach()).collect();
        if inside::is_inside() {
            let (outputs, arrangements) = owned(outputs, fresh)?;
            let name = segment.clone();
            let kept = move |_| Err(outlived(&name));
            return expanded(&segment, apply(segment.clone(), edges, outputs, kept)?, arrangements);
        }
        let fingerprint = Fingerprint::of(&outputs, watched, reached, since, self.options.verify)?;
        let (outputs, arrangements) = owned(outputs, fresh)?;
        let mut packed = Vec::with_capacity(self.inputs.len());
        for (index, (x, compressor)) in self.inputs.into_iter().zip(&self.compressors).enumerate() {
            let pack = || {
                let packed = compressor.pack(&x)?;
                compress::record(&segment, index, compressor.name(), &packed);
                Ok((packed.buffer(), packed))
            };
            let pack = caught(&segment, Phase::Forward, pack);
            packed.push(pack.map_err(|e| e.in_segment(&segment, Phase::Forward))?);
        }
        let (buffers, packed): (Vec<_>, Vec<Packed>) = packed.into_iter().unzip();
        let held = memory::Held::new(&segment, buffers.into_iter());
        memory::mark_with(|| format!("{segment}: forward"));
        let name = segment.clone();
        let kept = Kept { segment: name, packed, tracked, variables, since, fingerprint, held, weights };
        let outputs = apply(segment.clone(), edges, outputs, move |gradients| backward(kept, gradients))?;
        expanded(&segment, outputs, arrangements)
    }
}

/// Buffers of their own for the outputs, and the orders in memory that they had.
fn owned(outputs: Vec<Tensor>, fresh: bool) -> Result<(Vec<Output>, Vec<Arrangement>)> {
    let mut owned = Vec::with_capacity(outputs.len());
    let mut arrangements = Vec::with_capacity(outputs.len());
    for y in outputs {
        let arrangement = Arrangement::of(y.layout());
        owned.push(match fresh {
            true => {
                let shape = y.shape().clone();
                Output::new(storage::taken(y)?, shape)
            }
            false => Output::copy_of(&arrangement.in_memory_order(&y)?)?,
        });
        arrangements.push(arrangement);
    }
    Ok((owned, arrangements))
}

/// The outputs of the function, in the orders in memory that plain code gives.
fn expanded<O: Outputs>(segment: &str, outputs: Vec<Tensor>, arrangements: Vec<Arrangement>) -> Result<O> {
    let expand = |(y, arrangement): (Tensor, Arrangement)| arrangement.expand(&y);
    O::from_tensors(segment, outputs.into_iter().zip(arrangements).map(expand).collect::<Result<_>>()?)
}

fn outlived(segment: &str) -> Error {
    Error::RecomputeDiffers {
        segment: segment.to_owned(),
        what: "a tensor made in the first pass of the segment around it was kept and used outside".into(),
    }
}

/// Whether a stranger is one that the closure captures, or one that it kept from its first pass.
pub(super) fn stranger_in_recompute(segment: &str, stranger: Stranger, since: Age) -> Error {
    let Stranger { age, shape, dtype } = stranger;
    if age < since {
        return Error::CapturedActivation { segment: segment.to_owned(), shape, dtype };
    }
    Error::RecomputeDiffers {
        segment: segment.to_owned(),
        what: format!("it uses a tensor of shape {shape:?} that was kept from the first pass"),
    }
}
