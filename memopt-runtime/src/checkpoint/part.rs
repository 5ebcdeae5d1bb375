//! Parts of a model as segments.

use super::channel_chunks::{in_channel_chunks, recomputed_in_place};
use super::compressors::Compressors;
use super::fit::check_keep;
use super::options::Options;
use super::segment::Segment;
use super::time_chunks::{in_time_chunks, Norms};
use crate::compress::{Auto, SpikeCompressor};
use crate::module::{run_plainly, Checkpointable, Composition, Context, Executor, Form, Signal, Step};
use crate::path::joined;
use crate::plan::{self, Keep, Plan};
use crate::{Error, Result};
use candle_core::Tensor;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Runs compositions as a plan says.
#[derive(Debug)]
pub(super) struct Planner {
    pub(super) plan: Arc<Plan>,
    pub(super) compressors: Arc<Compressors>,
    /// The segments that have begun, by their keys in the plan.
    pub(super) begun: Mutex<BTreeSet<String>>,
}

impl Default for Planner {
    /// Everything is retained.
    fn default() -> Self {
        Planner { plan: Arc::default(), compressors: Arc::default(), begun: Mutex::default() }
    }
}

impl Executor for Planner {
    fn run(&self, mut steps: &[Step], mut x: Signal, context: &mut Context) -> Result<Signal> {
        while let Some((step, rest)) = steps.split_first() {
            let planned = step.name().and_then(|name| self.plan.beginning_at(context.path(), name));
            (x, steps) = match planned {
                None => (step.run(x, context)?, rest),
                Some((key, last, planned)) => {
                    self.begun.lock().insert(key.to_owned());
                    let end = steps.iter().position(|step| step.name() == Some(last)).ok_or_else(|| {
                        let first = step.name().unwrap_or_default();
                        Error::Plan {
                            what: format!("after `{first}` in `{}` there is no `{last}`", context.path()),
                        }
                    })?;
                    let (segment, rest) = steps.split_at(end + 1);
                    (self.segment_of(segment, planned, x, context)?, rest)
                }
            };
        }
        Ok(x)
    }
}

impl Planner {
    /// Runs steps as one segment.
    fn segment_of(
        &self,
        steps: &[Step],
        planned: &plan::Segment,
        x: Signal,
        context: &mut Context,
    ) -> Result<Signal> {
        let named = planned.compressor.as_ref().map(|named| self.compressors.get(named)).transpose()?;
        let compressor = named.unwrap_or_else(|| compressor_of(steps));
        let path = path_of(steps, context.path());
        let options = Options::new(path).compressor(compressor).verify(context.verifies());
        let names: Vec<&str> = steps.iter().filter_map(Step::name).collect();
        let has_segments_inside = self.plan.has_segments_inside(context.path(), names.iter().copied());
        let outer = context;
        let context = &mut outer.for_segment(&names);
        let y = match planned.keep {
            // In place, nothing inside is a segment.
            Keep::Recompute if has_segments_inside => recomputed(steps, options, x, context),
            Keep::Recompute => match recomputed_in_place(steps, &options, x, context)? {
                Ok(y) => Ok(y),
                Err(x) => recomputed(steps, options, x, context),
            },
            Keep::ChannelChunks(chunks) if context.takes_batch_statistics() => {
                in_channel_chunks(steps, chunks, options, x, context)
            }
            Keep::ChannelChunks(_) => {
                if context.is_training() {
                    let path = &options.segment;
                    context.note(format!("`{path}`: recomputed as a whole while norms are frozen"));
                }
                recomputed(steps, options, x, context)
            }
            Keep::TimeChunks(chunks) => in_time_chunks(steps, chunks, Norms::OfWindow, options, x, context),
            Keep::InexactTimeChunks(chunks) => {
                in_time_chunks(steps, chunks, Norms::OfChunk, options, x, context)
            }
        }?;
        outer.go_on_behind(context);
        Ok(y)
    }
}

/// Runs a part of a model as a segment placed by hand, inside a method that is a forward: what a plan does for parts
/// that it names.
///
/// `name` is the part's step of the path.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::checkpoint::checkpoint_part;
/// use memopt_runtime::module::{Context, Session};
/// use memopt_runtime::nn::{init::seeded, BatchNorm, Linear};
/// use memopt_runtime::plan::Keep;
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let layers = (Linear::new(3, 4, Default::default(), vb.pp("a"))?, BatchNorm::new(4, Default::default(), vb.pp("b"))?);
/// let x = Tensor::new(&[[[1f32, 0., 1.]], [[0., 0., 1.]]], &Device::Cpu)?; // [T, N, C]
/// let mut context = Context::training(&Session::new(0));
/// let y = checkpoint_part("layers", &layers, (&x).into(), &mut context, Keep::Recompute)?;
/// y.into_dense("layers")?.sum_all()?.backward()?;
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
///
/// # Errors
/// Those of the part, with the path of the segment.
pub fn checkpoint_part<M: Checkpointable>(
    name: impl Into<Cow<'static, str>>,
    part: &M,
    x: Signal,
    context: &mut Context,
    how: impl Into<plan::Segment>,
) -> Result<Signal> {
    let composition = Composition::new().part(name, part);
    if context.is_chunk() {
        // A chunk is one segment.
        return run_plainly(composition.steps(), x, context);
    }
    let how = how.into();
    check_keep(composition.steps(), &path_of(composition.steps(), context.path()), how.keep)?;
    Planner::default().segment_of(composition.steps(), &how, x, context)
}

/// Keeps the compressed input only.
fn recomputed(steps: &[Step], options: Options, x: Signal, context: &mut Context) -> Result<Signal> {
    let form = x.form();
    let inputs = x.into_tensors()?;
    let segment = Segment::new(&inputs, options)?;
    drop(inputs);
    let (mut first, record) = context.first_pass();
    let mut output_form = Form::Dense;
    let mut ran = segment.run(|x| -> candle_core::Result<Vec<Tensor>> {
        let twins: Vec<Step> = steps.iter().map(Step::detached).collect();
        let y = run_plainly(&twins, signal(&form, x)?, &mut first)?;
        output_form = y.form();
        Ok(y.into_tensors()?)
    })?;
    segment.adopt(&mut ran, steps.iter().flat_map(Step::parameters), context)?;
    let accumulators = ran.weights.accumulators();
    let (steps, before) = (steps.to_vec(), context.recompute(record, accumulators));
    context.go_on_behind(&first);
    let again = move |x: &[Tensor]| -> candle_core::Result<Vec<Tensor>> {
        Ok(run_plainly(&steps, signal(&form, x)?, &mut before.clone())?.into_tensors()?)
    };
    let outputs: Vec<Tensor> = segment.seal(ran, again)?;
    signal(&output_form, &outputs)
}

/// The signal of this form with these tensors.
fn signal(form: &Form, tensors: &[Tensor]) -> Result<Signal> {
    form.signal(&mut tensors.iter().cloned())
        .ok_or_else(|| candle_core::Error::Msg("a segment lost one of its tensors".into()).into())
}

/// The path of a segment: that of its only step, or of the first and the name of the last.
fn path_of(steps: &[Step], parent: &str) -> String {
    let names: Vec<&str> = steps.iter().filter_map(Step::name).collect();
    let range = match names.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first, .., last] => format!("{first}..{last}"),
    };
    joined(parent, &range)
}

/// The compressor declared for the input of the first step, or the smallest exact one.
fn compressor_of(steps: &[Step]) -> Arc<dyn SpikeCompressor> {
    match steps.first() {
        Some(Step::Part { compressor: Some(declared), .. }) => declared.clone(),
        _ => Arc::new(Auto),
    }
}
