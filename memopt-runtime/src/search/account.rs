//! What a search did, put together.

use super::cost::CostTable;
use super::heap::Mark;
use super::levels::Found;
use super::locate::locate;
use super::options::{Options, Resolved};
use super::presets::Level;
use super::simulate::{forward_seconds, guesses, packing_name, retained_bytes, Prediction};
use super::summary::{Resident, SegmentSummary, Summary};
use super::trace::Traced;
use super::verify::Measured;
use crate::plan::{Keep, Plan};
use std::collections::BTreeMap;
use std::time::Instant;

/// What there is to say of a search.
pub(super) struct Account<'a> {
    pub(super) options: &'a Options,
    pub(super) resolved: Resolved,
    pub(super) targets: usize,
    pub(super) costs: &'a CostTable,
    pub(super) traced: Option<&'a Traced>,
    pub(super) resident: Resident,
    pub(super) notes: Vec<String>,
    /// The tree of the plan.
    pub(super) structure: String,
    pub(super) found: Found,
    /// A step without a plan.
    pub(super) baseline: Option<Prediction>,
    pub(super) measured: Option<Measured>,
}

impl Account<'_> {
    /// The summary of a search that began at `start`.
    pub(super) fn summary(self, start: Instant) -> Summary {
        let notes = self.notes();
        let Account {
            options,
            resolved,
            targets,
            costs,
            traced,
            resident,
            structure,
            found,
            baseline,
            measured,
            ..
        } = self;
        let words = words(options, &resolved);
        let budget = options.memory_budget;
        let has_levels = budget.is_none();
        let Found { plan, prediction, log, counts, chosen, explanation } = found;
        let count =
            |is: &dyn Fn(Keep) -> bool| plan.segments().filter(|(_, segment)| is(segment.keep)).count();
        let pace = traced.map(|traced| pace(traced, options, costs));
        let ms = |seconds: f64| pace.map(|pace| seconds * pace * 1e3);
        let measured_peak = measured.as_ref().and_then(|measured| measured.peak);
        let has_prediction = traced.is_some();
        let peak = has_prediction.then_some(prediction.peak);
        let gradients = resident.weights.min(prediction.peak);
        let internal = measured_peak.or(peak).unwrap_or_default().saturating_sub(gradients);
        let resident = Resident { gradients, internal, ..resident };
        let segments = traced.map(|traced| segments(traced, &plan, &prediction, pace)).unwrap_or_default();
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
        let recommendation = recommendation(budget, &resolved, &prediction, baseline.as_ref());
        Summary {
            requested_level: has_levels.then_some(resolved.requested),
            applied_level: has_levels.then_some(resolved.level),
            prefer: resolved.prefer,
            profile: resolved.profile.filter(|_| has_levels),
            checkpoint_budget: has_levels.then_some(resolved.checkpoint_budget),
            memory_budget: budget,
            allow_expensive_profiling: resolved.allow_expensive_profiling,
            options: words,
            applied_steps: applied,
            skipped_steps: skipped,
            gc_segments: count(&|keep| keep == Keep::Recompute),
            tcgc_segments: count(&|keep| matches!(keep, Keep::TimeChunks(_) | Keep::InexactTimeChunks(_))),
            ccgc_segments: count(&|keep| matches!(keep, Keep::ChannelChunks(_))),
            spatial_splits: counts.spatial_splits,
            temporal_splits: counts.temporal_splits,
            restored: counts.restored,
            compressors_automatic: counts.automatic,
            compressors_declared: counts.declared + options.compressors.len(),
            targets,
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
            fallbacks: measured.as_ref().map(|measured| measured.fallbacks.clone()).unwrap_or_default(),
            search_ms,
            search_steps: baseline_ms.map(|ms| search_ms / ms),
            resident,
            segments,
            log,
            cost_table: costs.version(),
            curve_before: baseline.map(|baseline| baseline.marks).unwrap_or_default(),
            curve_after: measured
                .and_then(|measured| measured.curve)
                .map_or(prediction.marks, |curve| marks_of(&curve)),
            plan,
            structure,
        }
    }

    /// What is worth knowing beside the numbers.
    fn notes(&self) -> Vec<String> {
        let mut notes = [self.resolved.notes.clone(), self.notes.clone()].concat();
        let measured = self.measured.as_ref();
        let has_budget = self.options.memory_budget.is_some();
        match (measured, measured.and_then(|measured| measured.peak)) {
            (Some(_), None) => notes.push(
                "bytes are not counted: install `memory::CountingAllocator` to have measured_peak".into(),
            ),
            (None, _) if has_budget => {
                notes.push("no step was run: that it fits in the budget is predicted, not measured".into());
            }
            (_, Some(peak)) => {
                let off = peak as f64 / self.found.prediction.peak.max(1) as f64 - 1.;
                // Small steps are made of what no formula says: handles, tables, lists.
                if off.abs() > 0.05 && peak.abs_diff(self.found.prediction.peak) > 1 << 20 {
                    notes.push(format!(
                        "the step took {:+.0} % of the predicted bytes; please report the model",
                        100. * off
                    ));
                }
            }
            _ => {}
        }
        let fallbacks = measured.iter().flat_map(|measured| &measured.fallbacks);
        let fallbacks: Vec<String> = fallbacks.map(|(path, count)| format!("{path} ({count})")).collect();
        if !fallbacks.is_empty() {
            notes.push(format!(
                "inputs that their compressors could not hold were kept as they are: {}",
                fallbacks.join(", ")
            ));
        }
        let unused = self.options.compressors.keys().filter(|path| self.found.plan.get(path).is_none());
        let unused: Vec<&str> = unused.map(String::as_str).collect();
        if !unused.is_empty() {
            notes.push(format!(
                "no segment of the plan begins at these, so that their compressors are not used: {}",
                unused.join(", ")
            ));
        }
        if self.baseline.as_ref().is_some_and(|plain| plain.peak < self.found.prediction.peak) {
            notes.push(
                "the plan takes more than none would: the network is so small, or its weights so large, that segments cost more than \
                 they save; level 0, or a memory budget"
                    .into(),
            );
        }
        let guessed = self.traced.map(|traced| guesses(&traced.nodes)).unwrap_or_default();
        if !guessed.is_empty() {
            notes.push(format!(
                "these do not say what they take, which was guessed from what goes in and comes out: {}",
                guessed.join(", ")
            ));
        }
        let (counted, threads) = (self.costs.threads(), rayon::current_num_threads());
        if has_budget && threads > counted {
            notes.push(format!(
                "the workspaces of {counted} threads are counted, and {threads} work here: `Options::threads({threads})` counts \
                 all of them"
            ));
        }
        notes
    }
}

/// The options as they were resolved.
fn words(options: &Options, resolved: &Resolved) -> BTreeMap<String, String> {
    let limit = |limit: Option<usize>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let costs = if options.measure_costs { "measured" } else { "the table's" };
    let words = [
        ("compress", options.compress.to_string()),
        ("temporal_split_factor", options.temporal_split_factor.to_string()),
        ("max_split_rounds", limit(resolved.rounds)),
        ("max_candidates_per_round", limit(resolved.candidates)),
        ("warm_up", options.warm_up.to_string()),
        ("threads", options.costs().threads().to_string()),
        ("costs", costs.to_owned()),
    ];
    words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// By how much the table's seconds are longer on this machine; measured ones are its own.
fn pace(traced: &Traced, options: &Options, costs: &CostTable) -> f64 {
    let forward = forward_seconds(traced, costs);
    if options.measure_costs || forward <= 0. {
        return 1.;
    }
    traced.seconds / forward
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

fn segments(traced: &Traced, plan: &Plan, prediction: &Prediction, pace: Option<f64>) -> Vec<SegmentSummary> {
    let of = |(path, segment): (&str, &crate::plan::Segment)| {
        let nodes = locate(&traced.nodes, "", path)?;
        let predicted = prediction.segments.get(path).copied().unwrap_or_default();
        Some(SegmentSummary {
            path: path.to_owned(),
            keep: segment.keep.to_string(),
            compressor: packing_name(nodes.first()?, segment.compressor.as_ref()),
            held: predicted.held,
            retained: retained_bytes(nodes),
            recompute_ms: predicted.recompute_seconds * pace.unwrap_or(1.) * 1e3,
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
