//! What a search did and found.

use super::presets::{CheckpointBudget, Level, Prefer, Profile};
use super::simulate::Mark;
use crate::plan::Plan;
use serde::Serialize;
use std::collections::BTreeMap;

/// What [`optimize`](super::optimize) did: printed as a table of 80 columns, serialized as JSON.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The level that was asked for, if a budget was not.
    pub requested_level: Option<Level>,
    /// The level that was searched.
    pub applied_level: Option<Level>,
    /// The preference, if one was asked for or stands for nothing else.
    pub prefer: Option<Prefer>,
    /// The profile.
    pub profile: Option<Profile>,
    /// The share of the targets.
    pub checkpoint_budget: Option<CheckpointBudget>,
    /// The memory budget, in bytes, if one was asked for.
    pub memory_budget: Option<usize>,
    /// Whether more than a first look was allowed.
    pub allow_expensive_profiling: bool,
    /// The options as they were resolved, as words.
    pub options: BTreeMap<String, String>,
    /// What was done.
    pub applied_steps: Vec<String>,
    /// What was not, and why.
    pub skipped_steps: Vec<String>,
    /// Segments that are computed again as a whole.
    pub gc_segments: usize,
    /// Segments in time chunks.
    pub tcgc_segments: usize,
    /// Segments in channel chunks.
    pub ccgc_segments: usize,
    /// Splits in space.
    pub spatial_splits: usize,
    /// Splits in time or channel chunks.
    pub temporal_splits: usize,
    /// Segments that became plain parts again.
    pub restored: usize,
    /// Compressors that were found, by name.
    pub compressors_automatic: BTreeMap<String, usize>,
    /// Compressors that the model declares or the options name.
    pub compressors_declared: usize,
    /// Number of targets.
    pub targets: usize,
    /// The targets that became segments at level 1.
    pub chosen: Vec<String>,
    /// Why these.
    pub gc_selection_explanation: String,
    /// What else is worth knowing.
    pub notes: Vec<String>,
    /// What to try next.
    pub recommendation: String,
    /// The predicted peak of a step that retains everything, in bytes beyond those before the step.
    pub baseline_peak: Option<usize>,
    /// The predicted peak of a step of this plan.
    pub predicted_peak: Option<usize>,
    /// The measured one; `None` without the counting allocator, or if no step ran.
    pub measured_peak: Option<usize>,
    /// The predicted time of a step that retains everything.
    pub baseline_step_ms: Option<f64>,
    /// The predicted time of a step of this plan.
    pub predicted_step_ms: Option<f64>,
    /// The measured one.
    pub measured_step_ms: Option<f64>,
    /// Inputs that the verified step kept as they are since their compressor could not hold them, by segment; those of later
    /// steps are in [`Optimized::fallbacks`](super::Optimized::fallbacks).
    pub fallbacks: BTreeMap<String, u64>,
    /// Time of the whole search.
    pub search_ms: f64,
    /// The same in steps that retain everything.
    pub search_steps: Option<f64>,
    /// What is there whatever the plan, and at the peak.
    pub resident: Resident,
    /// Each segment.
    pub segments: Vec<SegmentSummary>,
    /// What was tried, level by level.
    pub log: Vec<String>,
    /// Which cost table.
    pub cost_table: u32,
    /// The plan.
    pub plan: Plan,
    /// The parts of the model as a tree, each segment with how it is kept.
    pub structure: String,
    /// The predicted memory curve of a step that retains everything.
    #[serde(skip)]
    pub curve_before: Vec<Mark>,
    /// That of this plan: measured where bytes are counted, else predicted.
    #[serde(skip)]
    pub curve_after: Vec<Mark>,
}

/// Bytes that are there at the peak of a step, by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Resident {
    /// Of the parameters.
    pub weights: usize,
    /// Of their gradients, all of them; they are part of the step's peak.
    pub gradients: usize,
    /// Of the optimizer.
    pub optimizer: usize,
    /// Of the sample.
    pub inputs: usize,
    /// Of the step beyond the gradients: what is kept for backward, and what exists for a moment.
    pub internal: usize,
}

impl Resident {
    /// What is there before a step.
    pub fn before_step(&self) -> usize {
        self.weights.saturating_add(self.optimizer).saturating_add(self.inputs)
    }

    /// All of it.
    pub fn total(&self) -> usize {
        self.before_step().saturating_add(self.gradients).saturating_add(self.internal)
    }
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SegmentSummary {
    /// Its path.
    pub path: String,
    /// How it is kept, as in a plan.
    pub keep: String,
    /// The encoding of its input.
    pub compressor: String,
    /// Bytes of what it keeps.
    pub held: usize,
    /// Bytes that it would keep if it were retained.
    pub retained: usize,
    /// Predicted time that its recompute adds to a step.
    pub recompute_ms: f64,
}

impl Summary {
    /// As JSON.
    ///
    /// # Errors
    /// Never, but for what serde may meet.
    pub fn to_json(&self) -> crate::Result<String> {
        serde_json::to_string_pretty(self).map_err(|e| candle_core::Error::Msg(e.to_string()).into())
    }
}

/// Bytes in megabytes (10^6).
fn megabytes(bytes: Option<usize>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1} MB", bytes as f64 / 1e6))
}

fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"))
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |word: Option<String>| word.unwrap_or_else(|| "-".to_owned());
        let mut rows: Vec<(&str, String)> = Vec::new();
        match self.memory_budget {
            Some(bytes) => rows.push(("memory budget", megabytes(Some(bytes)))),
            None => {
                let (asked, applied) = (self.requested_level, self.applied_level);
                let level = match (asked, applied) {
                    (Some(asked), Some(applied)) if asked != applied => {
                        format!("{applied} ({asked} asked for)")
                    }
                    _ => word(applied.map(|level| level.to_string())),
                };
                rows.push(("level", level));
                rows.push(("prefer", word(self.prefer.map(|p| p.to_string()))));
                rows.push(("profile", word(self.profile.map(|p| p.to_string()))));
                rows.push(("checkpoint budget", word(self.checkpoint_budget.map(|b| b.to_string()))));
            }
        }
        let counts = format!(
            "{} gc, {} in time chunks, {} in channel chunks",
            self.gc_segments, self.tcgc_segments, self.ccgc_segments
        );
        rows.push(("segments", counts));
        let splits = format!(
            "{} in space, {} in chunks, {} restored",
            self.spatial_splits, self.temporal_splits, self.restored
        );
        rows.push(("splits", splits));
        rows.push(("targets", format!("{} of {} chosen", self.chosen.len(), self.targets)));
        rows.push(("", self.gc_selection_explanation.clone()));
        let found: Vec<String> =
            self.compressors_automatic.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        rows.push(("compressors", format!("{found} found, {} declared", self.compressors_declared)));
        let peak = format!(
            "{} -> {} predicted, {} measured",
            megabytes(self.baseline_peak),
            megabytes(self.predicted_peak),
            megabytes(self.measured_peak)
        );
        rows.push(("peak of a step", peak));
        let time = format!(
            "{} -> {} predicted, {} measured",
            milliseconds(self.baseline_step_ms),
            milliseconds(self.predicted_step_ms),
            milliseconds(self.measured_step_ms)
        );
        rows.push(("time of a step", time));
        let steps = self.search_steps.map_or_else(String::new, |steps| format!(", {steps:.1} steps"));
        rows.push(("search", format!("{:.0} ms{steps}", self.search_ms)));
        let resident = &self.resident;
        let parts = [
            ("weights", resident.weights),
            ("gradients", resident.gradients),
            ("optimizer", resident.optimizer),
            ("inputs", resident.inputs),
            ("internal", resident.internal),
        ];
        let parts: Vec<String> =
            parts.iter().map(|(name, bytes)| format!("{name} {}", megabytes(Some(*bytes)))).collect();
        rows.push(("at the peak", parts.join(", ")));
        for note in &self.notes {
            rows.push(("note", note.clone()));
        }
        rows.push(("next", self.recommendation.clone()));
        for (name, text) in rows {
            for (index, line) in wrapped(&text, WIDTH - COLUMN).into_iter().enumerate() {
                let name = if index == 0 { name } else { "" };
                writeln!(f, "{name:<COLUMN$}{line}")?;
            }
        }
        if !self.segments.is_empty() {
            writeln!(f)?;
            writeln!(f, "{:<34} {:<15} {:<9} {:>9} {:>9}", "segment", "kept as", "input", "held", "saved")?;
        }
        for segment in &self.segments {
            let saved = segment.retained.saturating_sub(segment.held);
            let (held, saved) = (short(segment.held), short(saved));
            let mut path = segment.path.as_str();
            if path.chars().count() > 34 {
                writeln!(f, "{path}")?;
                path = "";
            }
            let (keep, compressor) = (&segment.keep, &segment.compressor);
            writeln!(f, "{path:<34} {keep:<15} {compressor:<9} {held:>9} {saved:>9}")?;
        }
        Ok(())
    }
}

/// Columns of a terminal.
const WIDTH: usize = 80;
/// Columns of the names.
const COLUMN: usize = 19;

/// In 9 columns.
fn short(bytes: usize) -> String {
    match bytes as f64 / 1e6 {
        megabytes if megabytes < 999.995 => format!("{megabytes:.2} MB"),
        megabytes => format!("{:.2} GB", megabytes / 1e3),
    }
}

/// Lines of so many columns at most, cut between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let len = lines.last().map_or(0, |line| line.chars().count());
        if len > 0 && len + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
