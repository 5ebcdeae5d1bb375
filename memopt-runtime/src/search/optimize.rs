//! The way from a model and a sample to a plan.

use super::budget::{fastest_within, smallest_peak};
use super::cost::CostTable;
use super::heap::Mark;
use super::levels::{self, Counts, Found};
use super::locate::locate;
use super::optimized::Optimized;
use super::options::{wrong, Options, Resolved};
use super::outline::Size;
use super::presets::Level;
use super::simulate::{packing_name, predict, Prediction};
use super::summary::{Resident, SegmentSummary, Summary};
use super::trace::{merge, trace, Traced};
use super::verify;
use crate::checkpoint::{targets_of, Planned};
use crate::module::{Checkpointable, Session, Signal};
use crate::plan::{Keep, Plan};
use crate::{Error, Result};
use candle_core::Tensor;
use std::collections::BTreeMap;
use std::time::Instant;

/// One or several sample inputs, or none.
#[derive(Debug, Clone, Default)]
pub struct Sample(pub(super) Vec<Signal>);

impl Sample {
    /// No sample: what needs one falls back or is refused.
    pub fn none() -> Self {
        Self::default()
    }
}

impl From<&Tensor> for Sample {
    fn from(x: &Tensor) -> Self {
        Sample(vec![x.into()])
    }
}

impl From<Signal> for Sample {
    fn from(x: Signal) -> Self {
        Sample(vec![x])
    }
}

/// Several inputs, each of the same shape: an encoding is chosen that holds all of them.
impl From<&[Tensor]> for Sample {
    fn from(all: &[Tensor]) -> Self {
        Sample(all.iter().map(Signal::from).collect())
    }
}

/// Finds a plan for a model.
///
/// `sample` is an input as training has it (`Sample::none()` without one). The variables stay the same, and nothing but
/// the plan is new: names, values, running statistics, random numbers.
///
/// ```
/// use candle_core::{DType, Device, ModuleT, Tensor};
/// use candle_nn::VarMap;
/// use memopt_runtime::nn::{init::seeded, BatchNorm, Lif, Linear};
/// use memopt_runtime::search::{optimize, Options, Prefer};
/// use memopt_runtime::checkpoint::Targets;
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let block = |name: &str| -> memopt_runtime::Result<_> {
///     let vb = vb.pp(name);
///     Ok((Linear::new(64, 64, Default::default(), vb.pp("fc"))?, BatchNorm::new(64, Default::default(), vb.pp("bn"))?, Lif::default()))
/// };
/// let net = vec![block("a")?, block("b")?];
/// let x = Tensor::ones((4, 8, 64), DType::F32, &Device::Cpu)?; // [T, N, C]
///
/// let options = Options::prefer(Prefer::Memory).targets(Targets::at("0").and_at("1"));
/// let net = optimize(net, &x, options)?;
/// println!("{}", net.summary());
/// net.forward_t(&x, true)?.sum_all()?.backward()?;
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
///
/// # Errors
/// If the options contradict each other; if the sample does not fit the model; if no plan fits in the memory budget.
pub fn optimize<M: Checkpointable>(
    model: M,
    sample: impl Into<Sample>,
    options: Options,
) -> Result<Optimized<M>> {
    let start = Instant::now();
    let Sample(samples) = sample.into();
    let resolved = options.resolve(!samples.is_empty())?;
    let targets = targets_of(&model, options.targets.as_ref())?;
    let costs = CostTable::default();
    options.tell("looking at what flows through the model");
    let traced = traced(&model, &samples, costs.threads())?;
    options.tell("searching");
    let mut search = Search { options: &options, resolved, targets, costs, notes: vec![] };
    let (found, baseline) = search.find(&model, traced.as_ref().map(|(traced, _)| traced), &samples)?;
    let found = search.agree(found)?;

    let session = match options.carries_states {
        true => Session::new(options.seed).carry_states(),
        false => Session::new(options.seed),
    };
    let planned = Planned::with_compressors(
        model,
        found.plan.clone(),
        session,
        options.own_compressors.iter().cloned(),
    )?;
    let measured = match samples.first() {
        Some(sample) if search.verifies(&found) => {
            options.tell("running a step of the plan");
            if options.warm_up {
                verify::step(&planned, sample)?;
            }
            Some(verify::step(&planned, sample)?)
        }
        _ => None,
    };
    let traced = traced.as_ref();
    let summary = search.summary(&planned, traced, found, baseline, measured, &samples, start);
    Ok(Optimized::new(planned, summary))
}

/// What a step of a model would take under a plan.
///
/// # Errors
/// If the sample does not fit the model, there is none, or the plan does not fit the model.
pub fn predict_plan<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    plan: &Plan,
) -> Result<Prediction> {
    let Sample(samples) = sample.into();
    crate::checkpoint::check_plan(model, plan)?;
    let costs = CostTable::default();
    match traced(model, &samples, costs.threads())? {
        Some((traced, _)) => Ok(predict(&traced, plan, &costs)),
        None => Err(wrong("a prediction needs a sample input; give one".into())),
    }
}

/// A point of the front of a model: no plan that is searched takes fewer bytes and less time.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontPoint {
    /// Predicted peak of a step, in bytes beyond those before it.
    pub peak: usize,
    /// Predicted seconds of a step.
    pub seconds: f64,
    /// The plan.
    pub plan: Plan,
}

/// The front of time and memory of a model: from the fastest plan to the smallest, in at most `points` points (2 to 1000).
///
/// # Errors
/// If the sample does not fit the model, or there is none.
pub fn front<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    points: usize,
) -> Result<Vec<FrontPoint>> {
    options.check()?;
    let Sample(samples) = sample.into();
    let costs = CostTable::default();
    let Some((traced, _)) = traced(model, &samples, costs.threads())? else {
        return Err(wrong("the front of a model needs a sample input; give one".into()));
    };
    let plain = predict(&traced, &Plan::new(), &costs);
    let least = smallest_peak(&traced, options, &costs, plain.peak);
    let mut front: Vec<FrontPoint> = Vec::new();
    let steps = points.clamp(2, 1000) - 1;
    for step in 0..=steps {
        let limit = plain.peak - (plain.peak - least) * step / steps;
        let Some(plan) = fastest_within(&traced, options, &costs, limit) else { continue };
        let Prediction { peak, seconds, .. } = predict(&traced, &plan, &costs);
        if front.last().is_none_or(|last| peak < last.peak) {
            front.push(FrontPoint { peak, seconds, plan });
        }
    }
    Ok(front)
}

/// The largest batch whose step fits in so many bytes under the smallest plan, and that plan; the sample's second
/// dimension is a batch of any size. Nothing larger than the sample is run. `None`: not even one image fits.
///
/// # Errors
/// If the sample does not fit the model, or there is none.
pub fn max_batch<M: Checkpointable>(
    model: &M,
    sample: impl Into<Sample>,
    options: &Options,
    budget: usize,
) -> Result<Option<(usize, Plan)>> {
    options.check()?;
    let Sample(samples) = sample.into();
    let costs = CostTable::default();
    let Some((traced, _)) = traced(model, &samples, costs.threads())? else {
        return Err(wrong("max_batch needs a sample input; give one".into()));
    };
    let batch = batch_of(&traced);
    let weights = weights_of(model);
    let fitting = |to: usize| {
        let sized = resized(&traced, Size { from: batch, to, threads: costs.threads() });
        let optimizer = (weights as f64 * options.optimizer_bytes_per_parameter_byte) as usize;
        let limit = budget.checked_sub(weights + optimizer + sized.input.bytes())?;
        fastest_within(&sized, options, &costs, limit)
    };
    let Some(mut plan) = fitting(1) else { return Ok(None) };
    let (mut fits, mut fails) = (1, 2);
    while let Some(larger) = fitting(fails) {
        (plan, fits, fails) = (larger, fails, fails.saturating_mul(2));
        if fails > 1 << 24 {
            break;
        }
    }
    while fails - fits > 1 {
        let middle = fits + (fails - fits) / 2;
        match fitting(middle) {
            Some(larger) => (plan, fits) = (larger, middle),
            None => fails = middle,
        }
    }
    Ok(Some((fits, plan)))
}

/// What the samples show, and how long the first forward took.
pub(super) fn traced<M: Checkpointable>(
    model: &M,
    samples: &[Signal],
    threads: usize,
) -> Result<Option<(Traced, f64)>> {
    let Some((first, others)) = samples.split_first() else { return Ok(None) };
    let start = Instant::now();
    let mut traced = trace(model, first, threads)?;
    let seconds = start.elapsed().as_secs_f64();
    for other in others {
        merge(&mut traced.nodes, &trace(model, other, threads)?.nodes);
    }
    Ok(Some((traced, seconds)))
}

/// The number of images a time step: the second dimension of what the first part that says so gives.
pub(super) fn batch_of(traced: &Traced) -> usize {
    traced.output.dims.get(1).copied().unwrap_or(1).max(1)
}

pub(super) fn resized(traced: &Traced, size: Size) -> Traced {
    Traced {
        nodes: traced.nodes.iter().map(|node| node.resized(size)).collect(),
        input: size.of(&traced.input),
        output: size.of(&traced.output),
    }
}

pub(super) fn weights_of<M: Checkpointable>(model: &M) -> usize {
    let all = crate::parameters::parameters(model);
    all.iter().map(|(_, tensor)| tensor.elem_count() * tensor.dtype().size_in_bytes()).sum()
}

struct Search<'a> {
    options: &'a Options,
    resolved: Resolved,
    targets: Vec<String>,
    costs: CostTable,
    notes: Vec<String>,
}

impl Search<'_> {
    /// The plan, and what a step without one would take.
    fn find<M: Checkpointable>(
        &mut self,
        model: &M,
        traced: Option<&Traced>,
        samples: &[Signal],
    ) -> Result<(Found, Option<Prediction>)> {
        let Some(traced) = traced else {
            let (plan, chosen, explanation) = levels::untraced(&self.targets, self.options, &self.resolved);
            let prediction = Prediction::default();
            let found =
                Found { plan, prediction, log: vec![], counts: Counts::default(), chosen, explanation };
            return Ok((found, None));
        };
        let baseline = predict(traced, &Plan::new(), &self.costs);
        let found = match self.options.memory_budget {
            None => levels::search(traced, &self.targets, self.options, &self.resolved, &self.costs),
            Some(budget) => self.within(model, traced, samples, budget, &baseline)?,
        };
        if self.targets.is_empty() && self.options.memory_budget.is_none() {
            self.notes.push(
                "no part is a target: mark some `#[checkpoint(segment)]`, name them with `Options::targets`, or give a memory \
                 budget"
                    .into(),
            );
        }
        Ok((found, Some(baseline)))
    }

    /// The fastest plan that fits.
    fn within<M: Checkpointable>(
        &self,
        model: &M,
        traced: &Traced,
        samples: &[Signal],
        budget: usize,
        baseline: &Prediction,
    ) -> Result<Found> {
        let before = self.resident(model, samples).before_step();
        let limit = budget.saturating_sub(before);
        let Some(plan) = fastest_within(traced, self.options, &self.costs, limit) else {
            let smallest = before + smallest_peak(traced, self.options, &self.costs, baseline.peak);
            return Err(Error::Budget { budget, smallest, resident: before });
        };
        let prediction = predict(traced, &plan, &self.costs);
        let log = vec![format!(
            "the fastest plan within {limit} bytes beyond the {before} that are resident: {} segments, {} bytes",
            plan.len(),
            prediction.peak
        )];
        let explanation = "a memory budget chooses among all parts, marked or not".to_owned();
        Ok(Found { plan, prediction, log, counts: Counts::default(), chosen: vec![], explanation })
    }

    /// In a group of processes, the plan of the first.
    fn agree(&self, found: Found) -> Result<Found> {
        let Some(agreement) = &self.options.agreement else { return Ok(found) };
        let plan: Plan = agreement.of_first(&found.plan.to_string())?.parse()?;
        let numbers = agreement.largest(&[found.prediction.peak as u64])?;
        let peak = numbers.first().map_or(found.prediction.peak, |&peak| peak as usize);
        Ok(Found { plan, prediction: Prediction { peak, ..found.prediction }, ..found })
    }

    /// Whether a real step is run.
    fn verifies(&self, found: &Found) -> bool {
        self.options.verify.unwrap_or(!found.plan.is_empty())
    }

    fn resident<M: Checkpointable>(&self, model: &M, samples: &[Signal]) -> Resident {
        let weights = weights_of(model);
        let bytes = |x: &Tensor| x.elem_count() * x.dtype().size_in_bytes();
        let tensors = samples.first().and_then(|x| x.clone().into_tensors().ok()).unwrap_or_default();
        let inputs = tensors.iter().map(bytes).sum();
        let optimizer = (weights as f64 * self.options.optimizer_bytes_per_parameter_byte) as usize;
        Resident { weights, gradients: 0, optimizer, inputs, internal: 0 }
    }

    #[allow(clippy::too_many_arguments)]
    fn summary<M: Checkpointable>(
        self,
        planned: &Planned<M>,
        traced: Option<&(Traced, f64)>,
        found: Found,
        baseline: Option<Prediction>,
        measured: Option<verify::Measured>,
        samples: &[Signal],
        start: Instant,
    ) -> Summary {
        let resolved = &self.resolved;
        let budget = self.options.memory_budget;
        let has_levels = budget.is_none();
        let Found { plan, prediction, log, counts, chosen, explanation } = found;
        let count =
            |is: &dyn Fn(Keep) -> bool| plan.segments().filter(|(_, segment)| is(segment.keep)).count();
        let mut notes = [resolved.notes.clone(), self.notes.clone()].concat();
        // The table's seconds, as this machine has them.
        let scale = traced.map(|(traced, seconds)| {
            let forward = super::simulate::forward_seconds(traced, &self.costs);
            if forward > 0. {
                seconds / forward
            } else {
                1.
            }
        });
        let ms = |seconds: f64| scale.map(|scale| seconds * scale * 1e3);
        let measured_peak = measured.as_ref().and_then(|measured| measured.peak);
        if measured.is_some() && measured_peak.is_none() {
            notes.push(
                "bytes are not counted: install `memory::CountingAllocator` to have measured_peak".into(),
            );
        }
        let guessed = traced.map(|(traced, _)| super::simulate::guesses(&traced.nodes)).unwrap_or_default();
        if !guessed.is_empty() {
            notes.push(format!(
                "these do not say what they take, which was guessed from what goes in and comes out: {}",
                guessed.join(", ")
            ));
        }
        let has_prediction = traced.is_some();
        let peak = has_prediction.then_some(prediction.peak);
        let mut resident = self.resident(&**planned, samples);
        let gradients = resident.weights.min(prediction.peak);
        resident.gradients = gradients;
        resident.internal = measured_peak.or(peak).unwrap_or_default().saturating_sub(gradients);
        let segments =
            traced.map(|(traced, _)| segments(traced, &plan, &prediction, scale)).unwrap_or_default();
        let baseline_ms = baseline.as_ref().and_then(|baseline| ms(baseline.seconds));
        let search_ms = start.elapsed().as_secs_f64() * 1e3;
        let (mut applied, mut skipped) = (Vec::new(), Vec::new());
        if has_levels {
            for (level, what) in STEPS {
                match *level <= resolved.level {
                    true => applied.push((*what).to_owned()),
                    false => skipped.push(format!("{what}: level {} is below {level}", resolved.level)),
                }
            }
        } else {
            applied.push("exact search under a memory budget".into());
        }
        let recommendation = recommendation(budget, resolved, &prediction, baseline.as_ref());
        Summary {
            requested_level: has_levels.then_some(resolved.requested),
            applied_level: has_levels.then_some(resolved.level),
            prefer: resolved.prefer,
            profile: resolved.profile.filter(|_| has_levels),
            checkpoint_budget: has_levels.then_some(resolved.checkpoint_budget),
            memory_budget: budget,
            allow_expensive_profiling: resolved.allow_expensive_profiling,
            options: self.words(),
            applied_steps: applied,
            skipped_steps: skipped,
            gc_segments: count(&|keep| keep == Keep::Recompute),
            tcgc_segments: count(&|keep| matches!(keep, Keep::TimeChunks(_) | Keep::InexactTimeChunks(_))),
            ccgc_segments: count(&|keep| matches!(keep, Keep::ChannelChunks(_))),
            spatial_splits: counts.spatial_splits,
            temporal_splits: counts.temporal_splits,
            restored: counts.restored,
            compressors_automatic: counts.automatic,
            compressors_declared: counts.declared + self.options.compressors.len(),
            targets: self.targets.len(),
            chosen,
            gc_selection_explanation: explanation,
            notes,
            recommendation,
            baseline_peak: baseline.as_ref().map(|baseline| baseline.peak),
            predicted_peak: peak,
            measured_peak,
            baseline_step_ms: baseline_ms,
            predicted_step_ms: if has_prediction { ms(prediction.seconds) } else { None },
            measured_step_ms: measured.as_ref().map(|measured| measured.time.as_secs_f64() * 1e3),
            search_ms,
            search_steps: baseline_ms.map(|ms| search_ms / ms),
            resident,
            segments,
            log,
            cost_table: self.costs.version(),
            curve_before: baseline.map(|baseline| baseline.marks).unwrap_or_default(),
            curve_after: measured
                .and_then(|measured| measured.curve)
                .map_or(prediction.marks, |curve| marks_of(&curve)),
            plan,
        }
    }

    fn words(&self) -> BTreeMap<String, String> {
        let resolved = &self.resolved;
        let limit = |limit: Option<usize>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
        let words = [
            ("compress", self.options.compress.to_string()),
            ("temporal_split_factor", self.options.temporal_split_factor.to_string()),
            ("max_split_rounds", limit(resolved.rounds)),
            ("max_candidates_per_round", limit(resolved.candidates)),
            ("warm_up", self.options.warm_up.to_string()),
        ];
        words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A measured curve in the form of a predicted one.
fn marks_of(curve: &crate::memory::Curve) -> Vec<Mark> {
    let bytes = |bytes: isize| usize::try_from(bytes).unwrap_or_default();
    let of = |mark: &crate::memory::Mark| Mark {
        name: mark.name.to_string(),
        live: bytes(mark.live),
        peak: bytes(mark.peak_since_previous),
    };
    curve.marks().iter().map(of).collect()
}

/// What each level adds.
const STEPS: &[(Level, &str)] = &[
    (Level::One, "segments"),
    (Level::Two, "splits in space"),
    (Level::Three, "splits in time and channel chunks"),
    (Level::Four, "restoring"),
];

fn segments(
    traced: &Traced,
    plan: &Plan,
    prediction: &Prediction,
    scale: Option<f64>,
) -> Vec<SegmentSummary> {
    let of = |(path, segment): (&str, &crate::plan::Segment)| {
        let nodes = locate(&traced.nodes, "", path)?;
        let predicted = prediction.segments.get(path).copied().unwrap_or_default();
        Some(SegmentSummary {
            path: path.to_owned(),
            keep: segment.keep.to_string(),
            compressor: packing_name(nodes.first()?, segment.compressor.as_ref()),
            held: predicted.held,
            retained: super::simulate::retained_bytes(nodes),
            recompute_ms: predicted.recompute_seconds * scale.unwrap_or(1.) * 1e3,
        })
    };
    plan.segments().filter_map(of).collect()
}

fn recommendation(
    budget: Option<usize>,
    resolved: &Resolved,
    prediction: &Prediction,
    baseline: Option<&Prediction>,
) -> String {
    let Some(baseline) = baseline else {
        return "give a sample input, so that sizes and values are known".into();
    };
    match budget {
        Some(_) if prediction.peak >= baseline.peak => "the step fits without a plan".into(),
        Some(_) => "a smaller budget takes more time, a larger one less; `front` shows how much".into(),
        None if resolved.level < Level::Four => {
            "profile `exhaustive` for less memory, or a memory budget for the fastest plan that fits".into()
        }
        None => "a memory budget finds the fastest plan that fits".into(),
    }
}
