//! Nested chains as one chain of layers.

use crate::module::{ChannelLayer, Context, LinearMap, NormSums, Signal, Step, WindowNeuron, WindowNorm};
use crate::path::joined;
use crate::Result;
use candle_core::Tensor;
use std::ops::Range;

/// A step at the bottom of nested chains: a layer, or a join.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    /// The names of the chains around it, outermost first.
    chains: Vec<String>,
    step: Step,
}

/// The layers and joins of some steps, in order.
pub(super) fn leaves_of(steps: &[Step]) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    collect(steps, &mut Vec::new(), &mut leaves);
    leaves
}

fn collect(steps: &[Step], chains: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    for step in steps {
        match step {
            Step::Part { name, part, .. } if part.composition().is_some() => {
                chains.push(name.to_string());
                if let Some(composition) = part.composition() {
                    collect(composition.steps(), chains, leaves);
                }
                chains.pop();
            }
            _ => leaves.push(Leaf { chains: chains.clone(), step: step.clone() }),
        }
    }
}

impl Leaf {
    /// Its path inside the segment, as far as it has one.
    pub(super) fn path(&self) -> String {
        let names = self.chains.iter().map(String::as_str).chain(self.step.name());
        names.collect::<Vec<_>>().join(".")
    }

    /// Its path in the model.
    pub(super) fn path_in(&self, context: &Context) -> String {
        joined(context.path(), &self.path())
    }

    pub(super) fn detached(&self) -> Self {
        Leaf { chains: self.chains.clone(), step: self.step.detached() }
    }

    pub(super) fn parameters(&self) -> Vec<Tensor> {
        self.step.parameters()
    }

    /// Whether it can be run in time chunks.
    pub(super) fn is_time_chunkable(&self) -> bool {
        self.step.is_time_chunkable()
    }

    /// Itself, if going back through it takes no values of its input.
    pub(super) fn linear_map(&self) -> Option<&dyn LinearMap> {
        match &self.step {
            Step::Part { part, .. } => part.linear_map(),
            Step::Join { .. } => None,
        }
    }

    /// Its pieces, if it is a layer of neurons without weights.
    pub(super) fn window_neuron(&self) -> Option<&dyn WindowNeuron> {
        match &self.step {
            Step::Part { part, .. } => part.window_neuron(),
            Step::Join { .. } => None,
        }
    }

    /// Whether it is known to leave no state: a layer with weights, or one that is linear.
    pub(super) fn is_stateless(&self) -> bool {
        self.channel_layer().is_some() || self.linear_map().is_some()
    }

    /// Its pieces, if it is a norm over the whole window.
    pub(super) fn window_norm(&self) -> Option<&dyn WindowNorm> {
        match &self.step {
            Step::Part { part, .. } => part.window_norm(),
            Step::Join { .. } => None,
        }
    }

    /// Itself, if it is a layer with weights whose output channels do not depend on each other.
    pub(super) fn channel_layer(&self) -> Option<&dyn ChannelLayer> {
        match &self.step {
            Step::Part { part, .. } => part.channel_layer(),
            Step::Join { .. } => None,
        }
    }

    /// The same for some output channels, if they do not depend on others.
    pub(super) fn for_channels(&self, channels: Range<usize>) -> Result<Option<Leaf>> {
        let Step::Part { name, part, .. } = &self.step else { return Ok(None) };
        let step = |part| Step::Part { name: name.clone(), part, compressor: None };
        let leaf = |part| Leaf { chains: self.chains.clone(), step: step(part) };
        Ok(part.for_channels(channels)?.map(leaf))
    }

    /// The context of this layer, which begins to run here.
    pub(super) fn context(&self, context: &mut Context) -> Context {
        let names: Vec<&str> = self.chains.iter().map(String::as_str).chain(self.step.name()).collect();
        enter(&names, context, Context::layer)
    }

    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let names: Vec<&str> = self.chains.iter().map(String::as_str).collect();
        enter(&names, context, |context| self.step.run(x, context))
    }
}

fn enter<T>(names: &[&str], context: &mut Context, f: impl FnOnce(&mut Context) -> T) -> T {
    match names.split_first() {
        None => f(context),
        Some((name, rest)) => context.enter(name, |context| enter(rest, context, f)),
    }
}

/// Adds the gradients of the parameters of a norm, which runs in `context`, where its weights are added up.
pub(super) fn add_norm_gradients(norm: &dyn WindowNorm, sums: &NormSums, context: &Context) -> Result<()> {
    let weights = norm.weights(context);
    let gradients: Vec<_> = weights.into_iter().map(|weight| weight.into_parts().2).collect();
    norm.parameter_gradients(std::slice::from_ref(sums), &gradients)?;
    Ok(())
}

/// Runs layers one after the other.
pub(super) fn run_leaves(leaves: &[Leaf], x: impl Into<Signal>, context: &mut Context) -> Result<Tensor> {
    let y = leaves.iter().try_fold(x.into(), |x, leaf| leaf.run(x, context))?;
    let last = leaves.last().map(|leaf| leaf.path_in(context)).unwrap_or_default();
    y.into_dense(&last)
}
