//! What is asked of a search, and what that comes to.

use super::cost::CostTable;
use super::presets::{CheckpointBudget, Level, Prefer, Profile};
use crate::checkpoint::{check_compressors, Targets};
use crate::compress::SpikeCompressor;
use crate::dist::Agreement;
use crate::module::Checkpointable;
use crate::plan::{Compressor, Keep, Plan, Segment};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is asked of [`optimize`](super::optimize). Explicit values win over the profile, the profile over the preference;
/// if none of level, profile, preference and budget is given, the preference is `balanced`.
///
/// ```
/// use memopt_runtime::search::{Level, Options, Prefer, Profile};
///
/// let small = Options::prefer(Prefer::Memory);
/// let thorough = Options::profile(Profile::Exhaustive).level(Level::Three);      // the explicit level wins
/// let fits = Options::memory_budget(200_000_000);
/// # let _ = (small, thorough, fits);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) level: Option<Level>,
    pub(super) prefer: Option<Prefer>,
    pub(super) profile: Option<Profile>,
    pub(super) checkpoint_budget: Option<CheckpointBudget>,
    pub(super) memory_budget: Option<usize>,
    pub(super) allow_expensive_profiling: Option<bool>,
    pub(super) temporal_split_factor: usize,
    pub(super) max_split_rounds: Option<usize>,
    pub(super) max_candidates_per_round: Option<usize>,
    pub(super) max_gc_segments: Option<usize>,
    pub(super) gc_target_budget_ratio: Option<f64>,
    pub(super) targets: Option<Targets>,
    pub(super) compress: bool,
    pub(super) compressors: BTreeMap<String, Compressor>,
    pub(super) own_compressors: Vec<Arc<dyn SpikeCompressor>>,
    pub(super) verify: Option<bool>,
    pub(super) warm_up: bool,
    pub(super) optimizer_bytes_per_parameter_byte: f64,
    pub(super) seed: u64,
    pub(super) carries_states: bool,
    pub(super) agreement: Option<Arc<dyn Agreement>>,
    pub(super) progress: Option<Progress>,
    pub(super) threads: Option<usize>,
    pub(super) measure_costs: bool,
}

/// Who is told what a search does now.
#[derive(Clone)]
pub(super) struct Progress(Arc<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            level: None,
            prefer: None,
            profile: None,
            checkpoint_budget: None,
            memory_budget: None,
            allow_expensive_profiling: None,
            temporal_split_factor: 2,
            max_split_rounds: None,
            max_candidates_per_round: None,
            max_gc_segments: None,
            gc_target_budget_ratio: None,
            targets: None,
            compress: true,
            compressors: BTreeMap::new(),
            own_compressors: vec![],
            verify: None,
            warm_up: false,
            optimizer_bytes_per_parameter_byte: 1.,
            seed: 0,
            carries_states: false,
            agreement: None,
            progress: None,
            threads: None,
            measure_costs: false,
        }
    }
}

impl Options {
    /// By preference: what is not said otherwise is filled from it.
    pub fn prefer(prefer: Prefer) -> Self {
        Options { prefer: Some(prefer), ..Self::default() }
    }

    /// By profile.
    pub fn profile(profile: Profile) -> Self {
        Options { profile: Some(profile), ..Self::default() }
    }

    /// The fastest plan whose step fits in so many bytes, all that is resident counted: weights, gradients, optimizer,
    /// batch and step.
    pub fn memory_budget(bytes: usize) -> Self {
        Options { memory_budget: Some(bytes), ..Self::default() }
    }

    /// Sets the preference.
    pub fn with_prefer(self, prefer: Prefer) -> Self {
        Options { prefer: Some(prefer), ..self }
    }

    /// Sets the profile; it wins over the preference.
    pub fn with_profile(self, profile: Profile) -> Self {
        Options { profile: Some(profile), ..self }
    }

    /// Sets the level; it wins over that of the profile.
    pub fn level(self, level: Level) -> Self {
        Options { level: Some(level), ..self }
    }

    /// Sets the share of the targets that become segments.
    pub fn checkpoint_budget(self, budget: CheckpointBudget) -> Self {
        Options { checkpoint_budget: Some(budget), ..self }
    }

    /// Whether a level above 1 may try more than one split.
    pub fn allow_expensive_profiling(self, allow: bool) -> Self {
        Options { allow_expensive_profiling: Some(allow), ..self }
    }

    /// By how much the chunks of a segment are multiplied at a time; 2 by default.
    pub fn temporal_split_factor(self, factor: usize) -> Self {
        Options { temporal_split_factor: factor, ..self }
    }

    /// Rounds of splits, at most.
    pub fn max_split_rounds(self, rounds: usize) -> Self {
        Options { max_split_rounds: Some(rounds), ..self }
    }

    /// Segments that a round tries, at most.
    pub fn max_candidates_per_round(self, candidates: usize) -> Self {
        Options { max_candidates_per_round: Some(candidates), ..self }
    }

    /// Targets that become segments, at most; with [`gc_target_budget_ratio`](Self::gc_target_budget_ratio), the smaller
    /// number counts.
    pub fn max_gc_segments(self, segments: usize) -> Self {
        Options { max_gc_segments: Some(segments), ..self }
    }

    /// The share of the targets that become segments, in (0, 1].
    pub fn gc_target_budget_ratio(self, ratio: f64) -> Self {
        Options { gc_target_budget_ratio: Some(ratio), ..self }
    }

    /// Which parts become segments; by default those that are marked `#[checkpoint(segment)]`.
    pub fn targets(self, targets: Targets) -> Self {
        Options { targets: Some(targets), ..self }
    }

    /// Whether inputs of segments are compressed; they are by default.
    pub fn compress(self, compress: bool) -> Self {
        Options { compress, ..self }
    }

    /// Sets the compressor of the segment at a path; it wins over the declared one.
    pub fn compressor(mut self, path: impl Into<String>, compressor: Compressor) -> Self {
        self.compressors.insert(path.into(), compressor);
        self
    }

    /// A compressor of one's own, which [`compressor`](Self::compressor) may name.
    pub fn own_compressor(mut self, compressor: Arc<dyn SpikeCompressor>) -> Self {
        self.own_compressors.push(compressor);
        self
    }

    /// Whether the plan is tried in a real step; by default if a search predicts more than targets alone.
    pub fn verify(self, verify: bool) -> Self {
        Options { verify: Some(verify), ..self }
    }

    /// Whether a step runs before the one that is measured.
    pub fn warm_up(self, warm_up: bool) -> Self {
        Options { warm_up, ..self }
    }

    /// What the optimizer keeps for each byte of parameters: 0 for plain descent, 1 with momentum (the default), 2 for Adam.
    pub fn optimizer_state(self, bytes_per_parameter_byte: f64) -> Self {
        Options { optimizer_bytes_per_parameter_byte: bytes_per_parameter_byte, ..self }
    }

    /// The seed of the session: random numbers of dropout.
    pub fn seed(self, seed: u64) -> Self {
        Options { seed, ..self }
    }

    /// Neurons go on where the last call left them.
    pub fn carry_states(self) -> Self {
        Options { carries_states: true, ..self }
    }

    /// Threads whose workspaces are counted; by default 2, whatever the machine has, so that the plan is the same
    /// everywhere.
    pub fn threads(self, threads: usize) -> Self {
        Options { threads: Some(threads), ..self }
    }

    /// Whether times are measured on this machine, layer by layer, instead of taken from the cost table. It takes a few
    /// steps' time, and plans may differ from run to run.
    pub fn measure_costs(self, measure: bool) -> Self {
        Options { measure_costs: measure, ..self }
    }

    /// Of a group of processes that must come to one plan, as [`dist::agreement`](crate::dist::agreement) of a communicator.
    ///
    /// It is for [`optimize`](super::optimize); `front`, `max_batch` and others answer each process by itself. Ranks that are threads
    /// of one process count each other's bytes when a step is verified: give them `verify(false)`.
    pub fn agreement(self, agreement: Arc<dyn Agreement>) -> Self {
        Options { agreement: Some(agreement), ..self }
    }

    /// Is told what the search does now, for a line on a terminal.
    pub fn progress(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Options { progress: Some(Progress(Arc::new(tell))), ..self }
    }

    /// What work costs, and in how many threads.
    pub(crate) fn costs(&self) -> CostTable {
        let costs = CostTable::default();
        self.threads.map_or(costs, |threads| costs.with_threads(threads))
    }

    /// Checks that there is in a model what is named.
    ///
    /// # Errors
    /// If there is no part at the path of a compressor, or no such compressor.
    pub(super) fn check_for<M: Checkpointable>(&self, model: &M) -> Result<()> {
        self.compressors.iter().try_for_each(|(path, compressor)| {
            let segment = Segment { keep: Keep::Recompute, compressor: Some(compressor.clone()) };
            check_compressors(model, &Plan::new().with(path.clone(), segment), &self.own_compressors)
                .map_err(|e| wrong(format!("the compressor for `{path}`: {e}")))
        })
    }

    /// In a group of processes, the largest of what they give; else what this one gives.
    ///
    /// # Errors
    /// If a process cannot be reached.
    pub(super) fn largest_of_group(&self, own: usize) -> Result<usize> {
        let Some(agreement) = &self.agreement else { return Ok(own) };
        Ok(agreement.largest(&[own as u64])?.first().map_or(own, |&largest| largest as usize))
    }

    /// Tells whoever wants to know.
    pub(super) fn tell(&self, what: &str) {
        tracing::debug!("{what}");
        if let Some(Progress(tell)) = &self.progress {
            tell(what);
        }
    }

    /// What these options come to.
    ///
    /// # Errors
    /// If they contradict each other, or a value is none.
    pub(super) fn resolve(&self, has_sample: bool) -> Result<Resolved> {
        self.check()?;
        let mut notes = Vec::new();
        let said = self.level.is_some() || self.profile.is_some() || self.prefer.is_some();
        let prefer = match said || self.memory_budget.is_some() {
            true => self.prefer,
            false => Some(Prefer::Balanced),
        };
        let profile = self.profile.or(prefer.map(Prefer::profile));
        let requested = self.level.or(profile.map(Profile::level)).unwrap_or(Level::Four);
        let mut level = requested;
        if !has_sample {
            if let Some(bytes) = self.memory_budget {
                return Err(wrong(format!(
                    "a memory budget of {bytes} bytes needs a sample input; give one"
                )));
            }
            match self.level {
                Some(level) if level > Level::One => {
                    return Err(wrong(format!(
                        "level {level} needs a sample input; give one, or level 0 or 1"
                    )));
                }
                None if level > Level::One => {
                    level = Level::One;
                    notes.push(format!(
                        "level {requested} needs a sample input and none was given: level 1 instead"
                    ));
                }
                _ => {}
            }
        }
        let expensive = self
            .allow_expensive_profiling
            .unwrap_or_else(|| profile.is_none_or(Profile::allows_expensive_profiling));
        let mut rounds = self.max_split_rounds.or_else(|| profile.and_then(Profile::rounds));
        let mut candidates = self.max_candidates_per_round.or_else(|| profile.and_then(Profile::candidates));
        if self.allow_expensive_profiling == Some(false) && level > Level::One {
            (rounds, candidates) = (Some(1), Some(1));
            notes.push("without expensive profiling: one round of splits, with one candidate".into());
        }
        if self.level.is_some_and(|level| level > Level::One) && self.max_split_rounds.is_none() {
            // A profile of a lower level has no rounds for it.
            if rounds == Some(0) {
                (rounds, candidates) = (Some(1), Some(1));
            }
        }
        let budget =
            self.checkpoint_budget.or(prefer.map(Prefer::budget)).unwrap_or(CheckpointBudget::Memory);
        Ok(Resolved {
            requested,
            level,
            prefer,
            profile,
            checkpoint_budget: budget,
            allow_expensive_profiling: expensive,
            rounds,
            candidates,
            notes,
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.memory_budget.is_some() {
            let others = [
                ("level", self.level.is_some()),
                ("profile", self.profile.is_some()),
                ("prefer", self.prefer.is_some()),
                ("checkpoint_budget", self.checkpoint_budget.is_some()),
                ("max_gc_segments", self.max_gc_segments.is_some()),
                ("gc_target_budget_ratio", self.gc_target_budget_ratio.is_some()),
            ];
            if let Some((name, _)) = others.iter().find(|(_, given)| *given) {
                return Err(wrong(format!(
                    "a memory budget finds the fastest plan that fits by itself and goes without `{name}`; with it go: targets, \
                     compress, compressor, threads, measure_costs, verify, optimizer_state"
                )));
            }
        }
        if self.temporal_split_factor < 2 {
            return Err(wrong(format!(
                "temporal_split_factor is {}; give 2 or more",
                self.temporal_split_factor
            )));
        }
        if let Some(threads) = self.threads.filter(|threads| !(1..=4096).contains(threads)) {
            return Err(wrong(format!("the workspaces of {threads} threads; give 1 to 4096")));
        }
        if self.max_gc_segments == Some(0) {
            return Err(wrong("max_gc_segments is 0; give 1 or more, or level 0 for no segments".into()));
        }
        if let Some(ratio) = self.gc_target_budget_ratio.filter(|ratio| !(*ratio > 0. && *ratio <= 1.)) {
            return Err(wrong(format!("gc_target_budget_ratio is {ratio}; give a share in (0, 1]")));
        }
        let per_byte = self.optimizer_bytes_per_parameter_byte;
        if !(0. ..=1000.).contains(&per_byte) {
            return Err(wrong(format!(
                "an optimizer keeps {per_byte} bytes for each byte of parameters; give 0 to 1000"
            )));
        }
        Ok(())
    }

    /// How many of so many targets become segments: a share, rounded up, and one at least.
    pub(super) fn chosen(&self, targets: usize, budget: CheckpointBudget) -> (usize, String) {
        let share = |share: f64| (targets as f64 * share).ceil() as usize;
        let by_ratio = self.gc_target_budget_ratio.map(share);
        let (wanted, why) = match (self.max_gc_segments, by_ratio) {
            (Some(most), Some(ratio)) => (
                most.min(ratio),
                format!("the smaller of max_gc_segments {most} and {ratio} by gc_target_budget_ratio"),
            ),
            (Some(most), None) => (most, format!("max_gc_segments {most}")),
            (None, Some(ratio)) => (ratio, format!("{ratio} by gc_target_budget_ratio")),
            (None, None) => (share(budget.share()), format!("checkpoint_budget {budget}")),
        };
        (wanted.clamp(1, targets.max(1)).min(targets), why)
    }
}

/// Options with all blanks filled.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    pub(super) requested: Level,
    pub(super) level: Level,
    pub(super) prefer: Option<Prefer>,
    pub(super) profile: Option<Profile>,
    pub(super) checkpoint_budget: CheckpointBudget,
    pub(super) allow_expensive_profiling: bool,
    pub(super) rounds: Option<usize>,
    pub(super) candidates: Option<usize>,
    pub(super) notes: Vec<String>,
}

pub(super) fn wrong(what: String) -> Error {
    Error::Options { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(options: Options) -> Resolved {
        options.resolve(true).unwrap()
    }

    #[test]
    fn explicit_values_win_over_the_profile_and_that_over_the_preference() {
        let all = resolved(Options::default());
        assert_eq!((all.prefer, all.profile), (Some(Prefer::Balanced), Some(Profile::Balanced)));
        assert_eq!((all.level, all.checkpoint_budget), (Level::Two, CheckpointBudget::Balanced));
        let memory = resolved(Options::prefer(Prefer::Memory));
        assert_eq!((memory.level, memory.rounds, memory.candidates), (Level::Three, Some(2), Some(2)));
        let over = resolved(Options::prefer(Prefer::Speed).with_profile(Profile::Exhaustive));
        assert_eq!(
            (over.level, over.rounds, over.checkpoint_budget),
            (Level::Four, None, CheckpointBudget::Speed)
        );
        let explicit = resolved(
            Options::prefer(Prefer::Memory).level(Level::One).checkpoint_budget(CheckpointBudget::Speed),
        );
        assert_eq!((explicit.level, explicit.checkpoint_budget), (Level::One, CheckpointBudget::Speed));
        let profile = resolved(Options::profile(Profile::Safe));
        assert_eq!((profile.level, profile.checkpoint_budget), (Level::One, CheckpointBudget::Memory));
        let level = resolved(Options::default().level(Level::Four));
        assert_eq!((level.profile, level.rounds), (None, None), "nothing limits an explicit level");
    }

    #[test]
    fn without_expensive_profiling_a_level_tries_one_split() {
        let some = resolved(Options::profile(Profile::Exhaustive).allow_expensive_profiling(false));
        assert_eq!((some.rounds, some.candidates), (Some(1), Some(1)));
        assert_eq!(some.notes.len(), 1);
    }

    #[test]
    fn without_a_sample_a_profile_falls_back_and_a_level_is_refused() {
        let fallen = Options::profile(Profile::Memory).resolve(false).unwrap();
        assert_eq!((fallen.requested, fallen.level), (Level::Three, Level::One));
        assert!(fallen.notes[0].contains("sample"));
        assert!(Options::default().level(Level::Two).resolve(false).is_err());
        assert!(Options::default().level(Level::One).resolve(false).is_ok());
        assert!(Options::memory_budget(1).resolve(false).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = [
            Options::memory_budget(1).level(Level::One),
            Options::memory_budget(1).with_prefer(Prefer::Speed),
            Options::default().temporal_split_factor(1),
            Options::default().max_gc_segments(0),
            Options::default().threads(0),
            Options::default().threads(usize::MAX),
            Options::default().gc_target_budget_ratio(0.),
            Options::default().gc_target_budget_ratio(f64::NAN),
            Options::default().optimizer_state(-1.),
            Options::default().optimizer_state(1e300),
        ];
        for options in refused {
            assert!(matches!(options.resolve(true), Err(Error::Options { .. })), "{options:?}");
        }
    }

    #[test]
    fn targets_are_a_share_rounded_up_and_one_at_least() {
        let count = |options: Options, targets| options.chosen(targets, CheckpointBudget::Speed).0;
        assert_eq!(count(Options::default(), 5), 3);
        assert_eq!(count(Options::default().gc_target_budget_ratio(0.01), 5), 1);
        assert_eq!(count(Options::default().max_gc_segments(4), 8), 4);
        assert_eq!(count(Options::default().max_gc_segments(4).gc_target_budget_ratio(0.25), 8), 2);
        assert_eq!(count(Options::default().max_gc_segments(9), 8), 8);
        assert_eq!(count(Options::default(), 0), 0);
    }
}
