//! The levels, on the model of a step instead of by running each trial.

use super::cost::CostTable;
use super::locate::{chunked, compressor_of, locate, split_in_space};
use super::options::{Options, Resolved};
use super::outline::Node;
use super::presets::Level;
use super::simulate::{predict, Prediction};
use super::trace::Traced;
use crate::plan::{Compressor, Keep, Plan, Segment};
use std::collections::{BTreeMap, BTreeSet};

/// What the levels came to.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) prediction: Prediction,
    pub(super) log: Vec<String>,
    pub(super) counts: Counts,
    pub(super) chosen: Vec<String>,
    pub(super) explanation: String,
}

/// How often a search did what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) spatial_splits: usize,
    pub(super) temporal_splits: usize,
    pub(super) restored: usize,
    pub(super) automatic: BTreeMap<String, usize>,
    pub(super) declared: usize,
}

/// Searches up to the resolved level.
pub(super) fn search(
    traced: &Traced,
    targets: &[String],
    options: &Options,
    resolved: &Resolved,
    costs: &CostTable,
) -> Found {
    let mut levels = Levels { traced, options, costs, log: vec![], counts: Counts::default() };
    let (mut plan, chosen, explanation) = match resolved.level {
        Level::Zero => (Plan::new(), vec![], "level 0 chooses none".to_owned()),
        _ => levels.first(targets, resolved),
    };
    let mut now = predict(traced, &plan, costs);
    if resolved.level >= Level::Two {
        (plan, now) = levels.rounds(plan, now, resolved, &mut Levels::in_space);
    }
    if resolved.level >= Level::Three {
        (plan, now) = levels.rounds(plan, now, resolved, &mut Levels::in_chunks);
    }
    if resolved.level >= Level::Four {
        (plan, now) = levels.restore(plan, now);
    }
    Found { plan, prediction: now, log: levels.log, counts: levels.counts, chosen, explanation }
}

/// The plan at the first level alone, where nothing was traced: which targets, in the order of the module.
pub(super) fn untraced(
    targets: &[String],
    options: &Options,
    resolved: &Resolved,
) -> (Plan, Vec<String>, String) {
    if resolved.level == Level::Zero {
        return (Plan::new(), vec![], "level 0 chooses none".into());
    }
    let (wanted, why) = options.chosen(targets.len(), resolved.checkpoint_budget);
    let chosen: Vec<String> = targets.iter().take(wanted).cloned().collect();
    let plan = chosen.iter().fold(Plan::new(), |plan, key| {
        let compressor = match options.compressors.get(key) {
            Some(named) => Some(named.clone()),
            None => (!options.compress).then_some(Compressor::Null),
        };
        plan.with(key.clone(), Segment { keep: Keep::Recompute, compressor })
    });
    let which = format!(
        "the first {wanted} of {} targets ({why}); without a sample their sizes are not known",
        targets.len()
    );
    (plan, chosen, which)
}

struct Levels<'a> {
    traced: &'a Traced,
    options: &'a Options,
    costs: &'a CostTable,
    log: Vec<String>,
    counts: Counts,
}

/// A trial: the plan and what it would take, or why it cannot be.
type Trial = Result<(Plan, Prediction, String), String>;

impl<'a> Levels<'a> {
    fn nodes(&self, key: &str) -> &'a [Node] {
        locate(&self.traced.nodes, "", key).unwrap_or_default()
    }

    /// Level 1: the targets with the largest inputs.
    fn first(&mut self, targets: &[String], resolved: &Resolved) -> (Plan, Vec<String>, String) {
        let (wanted, why) = self.options.chosen(targets.len(), resolved.checkpoint_budget);
        let bytes = |key: &String| self.nodes(key).first().map_or(0, |node| node.input.bytes());
        let mut order: Vec<usize> = (0..targets.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(targets.get(index).map_or(0, bytes)));
        let taken: BTreeSet<usize> = order.into_iter().take(wanted).collect();
        let chosen: Vec<String> = taken.into_iter().filter_map(|index| targets.get(index).cloned()).collect();
        let mut plan = Plan::new();
        for key in &chosen {
            let compressor = self.compressor(key);
            plan = plan.with(key.clone(), Segment { keep: Keep::Recompute, compressor });
        }
        let explanation = format!("{wanted} of {} targets, the largest inputs first ({why})", targets.len());
        (plan, chosen, explanation)
    }

    /// The compressor of a segment's input: said, declared, or found.
    fn compressor(&mut self, key: &str) -> Option<Compressor> {
        let compressor = compressor_of(self.options, key, self.nodes(key).first()?);
        let is_said = self.options.compressors.contains_key(key) || !self.options.compress;
        match &compressor {
            _ if is_said => {}
            None => self.counts.declared += 1,
            Some(found) => *self.counts.automatic.entry(found.to_string()).or_default() += 1,
        }
        compressor
    }

    fn trial(&self, plan: Plan, what: String) -> Trial {
        let prediction = predict(self.traced, &plan, self.costs);
        Ok((plan, prediction, what))
    }

    /// Cuts a segment by its split rule.
    fn in_space(&mut self, plan: &Plan, key: &str) -> Trial {
        match split_in_space(plan, key, self.nodes(key), self.options) {
            Some(plan) => self.trial(plan, "split in space".into()),
            None => Err("cannot be split in space".into()),
        }
    }

    /// Runs a segment in more chunks, of time or of channels: what has the lower peak.
    fn in_chunks(&mut self, plan: &Plan, key: &str) -> Trial {
        let Some((_, segment)) = plan.segments().find(|(path, _)| *path == key) else {
            return Err("is no segment".into());
        };
        let ways = chunked(segment.keep, self.options.temporal_split_factor, self.nodes(key));
        let trials = ways.into_iter().map(|keep| {
            let what = match keep {
                Keep::ChannelChunks(chunks) => format!("split in {chunks} channel chunks"),
                keep => format!("split in {} time chunks", keep.chunks().unwrap_or(1)),
            };
            let plan = plan.clone().with(key, Segment { keep, ..segment.clone() });
            let prediction = predict(self.traced, &plan, self.costs);
            (plan, prediction, what)
        });
        let best = trials.min_by(|a, b| {
            (a.1.peak, a.1.seconds).partial_cmp(&(b.1.peak, b.1.seconds)).unwrap_or(std::cmp::Ordering::Equal)
        });
        best.ok_or_else(|| "cannot be split in chunks".into())
    }

    /// Rounds of one kind of split: the segment at the peak first, as long as the peak falls.
    fn rounds(
        &mut self,
        mut plan: Plan,
        mut now: Prediction,
        resolved: &Resolved,
        split: &mut dyn FnMut(&mut Self, &Plan, &str) -> Trial,
    ) -> (Plan, Prediction) {
        let mut tried = BTreeSet::new();
        for _ in 0..resolved.rounds.unwrap_or(usize::MAX) {
            let mut candidates: Vec<(String, usize)> = plan
                .segments()
                .map(|(key, _)| (key.to_owned(), now.peaks.get(key).copied().unwrap_or_default()))
                .filter(|(key, _)| !tried.contains(key))
                .collect();
            candidates.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            let mut improved = false;
            for (key, _) in candidates.into_iter().take(resolved.candidates.unwrap_or(usize::MAX)) {
                match split(self, &plan, &key) {
                    Err(why) => {
                        self.log.push(format!("{key}: {why}"));
                        tried.insert(key);
                    }
                    Ok((next, then, what)) if then.peak < now.peak => {
                        self.log.push(format!("{key}: {what} ({} -> {})", now.peak, then.peak));
                        match what.contains("space") {
                            true => self.counts.spatial_splits += 1,
                            false => self.counts.temporal_splits += 1,
                        }
                        (plan, now, improved) = (next, then, true);
                        tried.clear();
                        break;
                    }
                    Ok((_, then, what)) => {
                        self.log.push(format!(
                            "{key}: {what}: no reduction, reverted ({} -> {})",
                            now.peak, then.peak
                        ));
                        tried.insert(key);
                    }
                }
            }
            if !improved {
                break;
            }
        }
        (plan, now)
    }

    /// Retains segments again, the dearest to compute again first, where the peak does not rise.
    fn restore(&mut self, mut plan: Plan, mut now: Prediction) -> (Plan, Prediction) {
        let mut order: Vec<(String, f64)> =
            now.segments.iter().map(|(key, segment)| (key.clone(), segment.recompute_seconds)).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for (key, _) in order {
            let next = plan.clone().without(&key);
            let then = predict(self.traced, &next, self.costs);
            match then.peak <= now.peak {
                true => {
                    self.log.push(format!("{key}: restored ({} -> {})", now.peak, then.peak));
                    self.counts.restored += 1;
                    (plan, now) = (next, then);
                }
                false => self.log.push(format!("{key}: kept ({} -> {})", now.peak, then.peak)),
            }
        }
        (plan, now)
    }
}
