//! How a model is made of parts; running a composition is the model's forward.

use super::checkpointable::Checkpointable;
use super::context::Context;
use super::join::JoinOp;
use super::part::Part;
use super::signal::Signal;
use crate::compress::SpikeCompressor;
use crate::Result;
use candle_core::Tensor;
use std::borrow::Cow;
use std::sync::Arc;

/// Steps one after the other: the series-parallel structure that `#[spatial_split(...)]` describes.
#[derive(Debug, Clone, Default)]
pub struct Composition {
    steps: Vec<Step>,
}

/// One step of a composition.
#[derive(Debug, Clone)]
pub enum Step {
    /// A field or an item of a list.
    Part {
        /// Field name or index: a step of the path.
        name: Cow<'static, str>,
        /// The part.
        part: Part,
        /// The compressor declared for its input.
        compressor: Option<Arc<dyn SpikeCompressor>>,
    },
    /// Branches over the same input, joined.
    Join {
        /// How their outputs become one.
        op: JoinOp,
        /// The branches.
        branches: Vec<Composition>,
    },
}

impl Composition {
    /// Nothing yet: the identity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with a part.
    pub fn part<M: Checkpointable>(self, name: impl Into<Cow<'static, str>>, module: &M) -> Self {
        self.step(Step::Part { name: name.into(), part: Part::of(module), compressor: None })
    }

    /// Goes on with a part whose input is kept by `compressor`.
    pub fn part_with<M: Checkpointable>(
        self,
        name: impl Into<Cow<'static, str>>,
        module: &M,
        compressor: impl SpikeCompressor + 'static,
    ) -> Self {
        let compressor = Some(Arc::new(compressor) as Arc<dyn SpikeCompressor>);
        self.step(Step::Part { name: name.into(), part: Part::of(module), compressor })
    }

    /// Goes on with several branches over the same input.
    pub fn join(self, op: JoinOp, branches: impl IntoIterator<Item = Composition>) -> Self {
        self.step(Step::Join { op, branches: branches.into_iter().collect() })
    }

    /// Goes on with a step.
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether all of it can be run in time chunks.
    pub fn is_time_chunkable(&self) -> bool {
        self.steps.iter().all(Step::is_time_chunkable)
    }

    /// The output for the window `x`, run as the context's executor sees fit.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        match context.executor() {
            Some(executor) => executor.run(&self.steps, x, context),
            None => run_plainly(&self.steps, x, context),
        }
    }
}

/// Steps one after the other.
pub(crate) fn run_plainly(steps: &[Step], x: Signal, context: &mut Context) -> Result<Signal> {
    steps.iter().try_fold(x, |x, step| step.run(x, context))
}

impl Step {
    /// The output for the window `x`.
    ///
    /// # Errors
    /// Those of the parts.
    pub fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        match self {
            Step::Part { name, part, .. } => context.enter(name, |context| part.forward(x, context)),
            Step::Join { op, branches } => {
                let outputs: Vec<Signal> =
                    branches.iter().map(|branch| branch.run(x.clone(), context)).collect::<Result<_>>()?;
                op.apply(outputs, context)
            }
        }
    }

    /// Whether it can be run in time chunks.
    pub fn is_time_chunkable(&self) -> bool {
        match self {
            Step::Part { part, .. } => part.is_time_chunkable(),
            Step::Join { op, branches } => {
                op.is_time_chunkable() && branches.iter().all(Composition::is_time_chunkable)
            }
        }
    }

    /// The name of a part; joins have none.
    pub fn name(&self) -> Option<&str> {
        match self {
            Step::Part { name, .. } => Some(name),
            Step::Join { .. } => None,
        }
    }

    /// The detached twin.
    pub fn detached(&self) -> Self {
        match self {
            Step::Part { name, part, compressor } => {
                Step::Part { name: name.clone(), part: part.detached(), compressor: compressor.clone() }
            }
            Step::Join { op, branches } => {
                let twin = |branch: &Composition| Composition {
                    steps: branch.steps.iter().map(Step::detached).collect(),
                };
                Step::Join { op: op.detached(), branches: branches.iter().map(twin).collect() }
            }
        }
    }

    /// The parameters of its parts.
    pub fn parameters(&self) -> Vec<Tensor> {
        match self {
            Step::Part { part, .. } => part.parameters().into_iter().map(|(_, tensor)| tensor).collect(),
            Step::Join { op, branches } => {
                let inside = branches.iter().flat_map(|branch| &branch.steps).flat_map(Step::parameters);
                inside.chain(op.parameters()).collect()
            }
        }
    }
}
