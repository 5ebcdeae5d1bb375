//! The one error type of the runtime.
//!
//! Every message says what was wrong, with which part (the path of the segment or the name of the function), and
//! what to do about it.

use candle_core::{DType, Shape};

/// `Result` with memopt's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which pass of a training step an error happened in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The first run of a closure, in the forward pass.
    Forward,
    /// The second run of a closure, in the backward pass, that rebuilds what was not kept.
    Recompute,
    /// Gradients are computed.
    Backward,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Forward => "forward",
            Phase::Recompute => "recompute",
            Phase::Backward => "backward",
        })
    }
}

/// How an error names a part: the path is empty where a layer is run by itself.
fn named(part: &str) -> String {
    match part {
        "" => "the layer".to_owned(),
        part => format!("`{part}`"),
    }
}

/// What can go wrong.
///
/// Candle runs our operations, so an error of ours that happens inside `loss.backward()` arrives as a
/// [`candle_core::Error`]; [`Error::find`] gets the typed one out of it.
///
/// ```
/// use candle_core::{Device, Var};
/// use memopt_runtime::{checkpoint::checkpoint, Error};
///
/// let w = Var::new(&[1f32, 2.], &Device::Cpu)?;
/// let y = checkpoint(move |x| x[0].mul(&w), &[Var::new(&[3f32, 4.], &Device::Cpu)?], "product")?;
/// let loss = y.sum_all()?;
/// loss.backward()?;
/// let error = loss.backward().unwrap_err();
/// assert!(matches!(Error::find(&error), Some(Error::SecondBackward { function }) if function == "product"));
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What is asked of a search makes no sense.
    #[error("options: {what}")]
    Options {
        /// What is wrong, and what is valid.
        what: String,
    },

    /// No plan fits.
    #[error(
        "no plan fits in {budget} bytes: the smallest that can be reached is {smallest} bytes, of which {resident} are there \
         whatever the plan (weights, optimizer, batch); take a smaller batch or a larger budget"
    )]
    Budget {
        /// Bytes that were given.
        budget: usize,
        /// The fewest that a plan takes.
        smallest: usize,
        /// Bytes of weights, optimizer and batch.
        resident: usize,
    },

    /// `backward()` went through a function a second time; what it had saved is already freed.
    #[error("`{function}`: backward was called a second time, but what it had saved is freed by the first; run the forward pass again before each backward, or go back from several losses at once: add them up, or use `autograd::backward_from`")]
    SecondBackward {
        /// Name of the function.
        function: String,
    },

    /// Gradients of an earlier, failed backward are still in the function.
    #[error("`{function}`: it still holds gradients of an earlier backward that failed midway, or of one that runs at the same time in another thread; run the forward pass again")]
    StaleGradient {
        /// Name of the function.
        function: String,
    },

    /// A backward closure gave another number of gradients than the function has inputs.
    #[error("`{function}`: its backward closure gave {got} gradients for {expected} inputs; give one entry for each input, `None` for those that need none")]
    GradientCount {
        /// Name of the function.
        function: String,
        /// Number of inputs.
        expected: usize,
        /// Number of gradients given.
        got: usize,
    },

    /// A gradient has another shape than the tensor that it belongs to.
    #[error("`{function}`: the gradient of {tensor} has shape {got:?}, but the tensor has {expected:?}; give one of the tensor's shape")]
    GradientShape {
        /// Name of the function.
        function: String,
        /// Which tensor, such as "input 0".
        tensor: String,
        /// Shape of the tensor.
        expected: Shape,
        /// Shape of the gradient.
        got: Shape,
    },

    /// A gradient has another dtype than the tensor that it belongs to.
    #[error("`{function}`: the gradient of {tensor} is {got:?}, but the tensor is {expected:?}; convert it with `to_dtype`")]
    GradientDType {
        /// Name of the function.
        function: String,
        /// Which tensor, such as "input 0".
        tensor: String,
        /// Dtype of the tensor.
        expected: DType,
        /// Dtype of the gradient.
        got: DType,
    },

    /// A gradient and its tensor are on several devices.
    #[error("`{function}`: {tensor} is on another device than the tensor that it belongs to; move it with `to_device`")]
    MixedDevices {
        /// Name of the function.
        function: String,
        /// Which tensor, such as "input 1".
        tensor: String,
    },

    /// A storage has another number of elements than its shape.
    #[error("`{function}`: a buffer of {got} elements cannot have shape {shape:?}; give as many elements as the shape has")]
    StorageLength {
        /// Name of the function.
        function: String,
        /// Number of elements in the buffer.
        got: usize,
        /// The shape asked for.
        shape: Shape,
    },

    /// User code panicked; the panic was caught and nothing is poisoned.
    #[error("`{function}`: panicked in {phase}: {message}")]
    Panicked {
        /// Name of the function or segment.
        function: String,
        /// In which pass.
        phase: Phase,
        /// The panic's message.
        message: String,
    },

    /// An error in the code of one segment.
    #[error("segment `{segment}`, {phase}: {source}")]
    Segment {
        /// Path of the segment.
        segment: String,
        /// In which pass.
        phase: Phase,
        /// What happened.
        source: Box<Error>,
    },

    /// A checkpointed closure captures a tensor that is itself computed from variables.
    #[error("segment `{segment}`: the closure captures a tensor of shape {shape:?} ({dtype:?}) that was computed from variables outside of it, and its gradient would be lost; pass it as an input, `checkpoint(f, &[x, captured], ..)`, and use the `x[1]` that the closure is given")]
    CapturedActivation {
        /// Path of the segment.
        segment: String,
        /// Shape of the captured tensor.
        shape: Shape,
        /// Its dtype.
        dtype: DType,
    },

    /// A parameter of a planned part is not a variable but computed from some.
    #[error("segment `{segment}`: a parameter of shape {shape:?} ({dtype:?}) was itself computed from variables, and its gradient would be lost; let the model hold the variables, and compute it in the forward")]
    ComputedParameter {
        /// Path of the segment.
        segment: String,
        /// Shape of the parameter.
        shape: Shape,
        /// Its dtype.
        dtype: DType,
    },

    /// The twin of a part is not detached.
    #[error("segment `{segment}`: a part of it holds variables that its `Parameters` do not visit and detach, or a tensor computed from some, so that their gradients would be lost; visit them in `visit_parameters` and detach them in `detached` (as `#[derive(Parameters)]` does), and do not skip fields that hold variables")]
    HiddenParameter {
        /// Path of the segment.
        segment: String,
    },

    /// The recompute in backward did something else than the first pass.
    #[error("segment `{segment}`: the recompute differs from the first pass: {what}; the closure must compute the same again: no unseeded randomness, no state that moves, no weights that change between forward and backward")]
    RecomputeDiffers {
        /// Path of the segment.
        segment: String,
        /// What differs.
        what: String,
    },

    /// Variables were changed between forward and backward.
    #[error("segment `{segment}`: a variable of shape {shape:?} was changed between forward and backward, so the recompute would give wrong gradients; run `backward` before the optimizer steps")]
    WeightsChanged {
        /// Path of the segment.
        segment: String,
        /// Shape of the variable.
        shape: Shape,
    },

    /// The chain of functions is deeper than backward can follow on the stack.
    #[error("`{function}`: a chain of more than {limit} functions is too deep: Candle's backward recurses through it; put several layers in one function, or raise the limit with `autograd::set_depth_limit` and run forward, backward and drop in a thread with a larger stack")]
    TooDeep {
        /// Name of the function.
        function: String,
        /// The limit in force.
        limit: usize,
    },

    /// Compressors were given one by one, but not one for each input.
    #[error("segment `{segment}`: {compressors} compressors for {inputs} inputs; give one for each input, or one for all with `Options::compressor`")]
    CompressorCount {
        /// Path of the segment.
        segment: String,
        /// Number of inputs.
        inputs: usize,
        /// Number of compressors.
        compressors: usize,
    },

    /// A compressor gave back something else than it was given.
    #[error("compressor `{compressor}`: decoding gave {got_len} elements of {got_dtype:?}, but {expected_len} of {expected_dtype:?} were encoded; mend its `decode`")]
    Decoded {
        /// Name of the compressor.
        compressor: String,
        /// Number of elements encoded.
        expected_len: usize,
        /// Their dtype.
        expected_dtype: DType,
        /// Number of elements decoded.
        got_len: usize,
        /// Their dtype.
        got_dtype: DType,
    },

    /// A closure gave back another number of outputs than its type says.
    #[error("segment `{segment}`: {expected} outputs expected, {got} given; `Outputs::into_tensors` and `from_tensors` must agree on the number")]
    OutputCount {
        /// Path of the segment.
        segment: String,
        /// Number expected by the type.
        expected: usize,
        /// Number given.
        got: usize,
    },

    /// A part that takes one tensor was given several.
    #[error("`{part}` takes one tensor and was given {got} signals; join them first")]
    SignalKind {
        /// Path of the part.
        part: String,
        /// Number of signals given.
        got: usize,
    },

    /// A join has a number of branches that its operation does not take.
    #[error("`{part}`: `{op}` cannot join {got} branches; `iand` takes two, the others one or more")]
    JoinBranches {
        /// Path of the part.
        part: String,
        /// Name of the operation.
        op: &'static str,
        /// Number of branches.
        got: usize,
    },

    /// A layer was given a tensor that does not fit it.
    #[error("{}: {what}", named(part))]
    LayerInput {
        /// Path of the part.
        part: String,
        /// What does not fit, and what would.
        what: String,
    },

    /// A part that needs the whole window stands in a segment of time chunks.
    #[error("segment `{segment}`: `{part}` needs the whole window and cannot be run in time chunks; split in space first, so that it is in a segment of its own that is recomputed as a whole")]
    NotTimeChunkable {
        /// Path of the segment.
        segment: String,
        /// The part, inside the segment.
        part: String,
    },

    /// A segment of channel chunks has layers that cannot be run for some of their channels.
    #[error("segment `{segment}`: {what}; channel chunks are for a segment with a convolution of one group or a linear layer over [T, N, in], a batch norm behind it, and LIF or IF neurons: name the block that has them, or a range of its parts (`conv..neuron`), or recompute it as a whole or in time chunks")]
    NotChannelChunkable {
        /// Path of the segment.
        segment: String,
        /// What stands in the way.
        what: String,
    },

    /// A model was trained by itself inside of a segment.
    #[error("`{model}` was run for training by itself inside of a checkpointed closure: its statistics would move, and its dropout be drawn, a second time in the recompute; make the code around it a model's forward (`#[checkpoint(forward = \"...\")]`) that hands on its context, and give that a plan (`checkpoint::Planned`)")]
    TrainedInsideSegment {
        /// The model or layer.
        model: String,
    },

    /// A plan cannot be read, or does not fit the model.
    #[error("plan: {what}")]
    Plan {
        /// What is wrong, and what would be right.
        what: String,
    },

    /// Something is not supported on this device.
    #[error("`{function}`: {what} runs on the CPU only so far; move the tensors there with `to_device`")]
    UnsupportedDevice {
        /// Name of the function.
        function: String,
        /// What was asked for.
        what: String,
    },

    /// Training was set up in a way that makes no sense.
    #[error("{part}: {what}")]
    Training {
        /// What was set up: the accumulator, an optimizer, a schedule.
        part: String,
        /// What is wrong, and what is valid.
        what: String,
    },

    /// A loss that cannot be gone back from.
    #[error("loss: {what}")]
    Loss {
        /// What is wrong with the loss or its count, and what is expected.
        what: String,
    },

    /// A parameter that cannot be trained, or a gradient that does not fit it.
    #[error("parameter `{name}`: {what}")]
    Parameter {
        /// Name of the parameter.
        name: String,
        /// What is wrong, and what is expected.
        what: String,
    },

    /// A saved state lacks a tensor.
    #[error("state of {owner}: there is no tensor `{name}`; it was saved of other parameters or of another configuration")]
    StateMissing {
        /// Whose state it is.
        owner: String,
        /// Name of the tensor.
        name: String,
    },

    /// A saved state has a tensor that nobody takes.
    #[error("state of {owner}: nothing takes the tensor `{name}`; it was saved of other parameters or of another configuration")]
    StateForeign {
        /// Whose state it is.
        owner: String,
        /// Name of the tensor.
        name: String,
    },

    /// A tensor of a saved state does not fit.
    #[error("state of {owner}: `{name}` {what}")]
    StateTensor {
        /// Whose state it is.
        owner: String,
        /// Name of the tensor.
        name: String,
        /// What it is, and what is expected.
        what: String,
    },

    /// A state that its owner does not show.
    #[error("the state of {owner} cannot be saved or loaded: Candle's optimizers do not show theirs; use `train::Sgd` or `train::AdamW`")]
    StateHidden {
        /// Whose state it is.
        owner: String,
    },

    /// A snapshot is of a training that was set up in another way.
    #[error("the snapshot is of a training that was set up in another way: {differences}; go on with what was, or begin anew in another folder")]
    OtherConfiguration {
        /// What differs: each with what it was and what it is.
        differences: String,
    },

    /// A state was asked for between two steps.
    #[error("{micro_batches} micro-batches are accumulated and not stepped on; save behind a step, call `finish` before, or save them too with `state_with_window`")]
    MidAccumulation {
        /// Micro-batches since the last step.
        micro_batches: usize,
    },

    /// Memory accounting was used in a way that cannot give a right number.
    #[error(transparent)]
    Memory(#[from] crate::memory::MemoryError),

    /// The ranks of a process group cannot do something together.
    #[error(transparent)]
    Group(#[from] crate::dist::GroupError),

    /// A snapshot could not be written or read.
    #[error(transparent)]
    Snapshot(#[from] crate::snapshot::SnapshotError),

    /// A data set or its loader gave no batch.
    #[error(transparent)]
    Data(#[from] crate::data::DataError),

    /// An error of Candle's own.
    #[error(transparent)]
    Candle(candle_core::Error),
}

impl Error {
    /// The memopt error inside an error that came out of Candle, as from `loss.backward()`; `None` if it is Candle's own.
    pub fn find(error: &candle_core::Error) -> Option<&Error> {
        use candle_core::Error as C;
        match error {
            C::Io(e) => e.get_ref().and_then(|e| e.downcast_ref()),
            C::Context { inner, .. } | C::WithPath { inner, .. } | C::WithBacktrace { inner, .. } => {
                Self::find(inner)
            }
            C::WrappedContext { wrapped, .. } => match wrapped.downcast_ref::<C>() {
                Some(inner) => Self::find(inner),
                None => wrapped.downcast_ref(),
            },
            _ => None,
        }
    }

    /// The innermost error: what happened, without the segments it happened in.
    pub fn root(&self) -> &Error {
        match self {
            Error::Segment { source, .. } => source.root(),
            Error::Candle(error) => Self::find(error).map_or(self, Error::root),
            other => other,
        }
    }

    /// An error of a piece of a layer, which does not know the layer's path.
    pub(crate) fn of_part(self, path: &str) -> Self {
        match self {
            Error::LayerInput { what, .. } => Error::LayerInput { part: path.to_owned(), what },
            other => other,
        }
    }

    /// Says in which segment it happened, unless it says so itself.
    pub(crate) fn in_segment(self, segment: &str, phase: Phase) -> Self {
        match &self {
            Error::Panicked { function: named, .. } | Error::Segment { segment: named, .. }
                if named == segment =>
            {
                self
            }
            _ => Error::Segment { segment: segment.to_owned(), phase, source: Box::new(self) },
        }
    }
}

impl From<candle_core::Error> for Error {
    /// An error of ours that went through Candle comes back as it was.
    fn from(error: candle_core::Error) -> Self {
        match error {
            candle_core::Error::Io(e) => match e.downcast::<Error>() {
                Ok(ours) => ours,
                Err(e) => Error::Candle(candle_core::Error::Io(e)),
            },
            other => Error::Candle(other),
        }
    }
}

impl From<Error> for candle_core::Error {
    /// Candle's `Io` is its one variant that prints as the error inside and lets [`Error::find`] get it back, typed.
    fn from(error: Error) -> Self {
        match error {
            Error::Candle(e) => e,
            ours => candle_core::Error::Io(std::io::Error::other(ours)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_way_through_candle() {
        let ours = Error::SecondBackward { function: "f".into() };
        let text = ours.to_string();
        let candle: candle_core::Error = ours.into();
        assert_eq!(candle.to_string(), text);
        let candle = candle.context("training").with_path("model");
        assert!(matches!(Error::find(&candle), Some(Error::SecondBackward { .. })));
        let candle = candle_core::Context::context(Err::<(), _>(candle), "step").unwrap_err();
        assert!(matches!(Error::find(&candle), Some(Error::SecondBackward { .. })));
        assert!(matches!(Error::from(candle).root(), Error::SecondBackward { .. }));
        let back: Error = candle_core::Error::from(Error::SecondBackward { function: "f".into() }).into();
        assert!(matches!(back, Error::SecondBackward { .. }));
    }

    #[test]
    fn candles_own_errors_stay_candles() {
        let e = candle_core::Error::Msg("no".into());
        assert!(Error::find(&e).is_none());
        assert!(matches!(Error::from(e), Error::Candle(_)));
        let io = candle_core::Error::Io(std::io::Error::other("disk"));
        assert!(matches!(Error::from(io), Error::Candle(candle_core::Error::Io(_))));
    }
}
