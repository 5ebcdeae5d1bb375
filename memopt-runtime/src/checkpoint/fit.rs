//! Whether a plan fits a model: every segment is there, and will be run as one.

use super::leaves::leaves_of;
use super::{channel_chunks, time_chunks};
use crate::module::{Composition, Step};
use crate::path::joined;
use crate::plan::{Keep, Plan, Segment};
use crate::{Error, Result};
use std::collections::BTreeSet;

/// Checks that the plan names parts of the model, in order, that segments of one chain do not overlap, that they can be
/// run as they are kept, and that nothing inside of a chunked segment is one. Gives the segments that are inside of no
/// other.
pub(super) fn check(plan: &Plan, composition: &Composition) -> Result<Vec<String>> {
    let mut fit = Fit { plan, applied: BTreeSet::new(), outermost: Vec::new(), paths: Vec::new() };
    fit.walk(composition, "", None)?;
    match plan.segments().find(|(path, _)| !fit.applied.contains(*path)) {
        None => Ok(fit.outermost),
        Some((path, _)) => {
            let parts = fit.paths.join(", ");
            Err(wrong(format!(
                "the model has no part, or no such range of parts, `{path}`; its parts are: {parts}"
            )))
        }
    }
}

/// Checks that steps can be run as a segment of this kind.
pub(crate) fn check_keep(steps: &[Step], path: &str, keep: Keep) -> Result<()> {
    match keep {
        Keep::TimeChunks(0) | Keep::InexactTimeChunks(0) | Keep::ChannelChunks(0) => {
            Err(wrong(format!("`{path}` in 0 chunks; give 1 or more")))
        }
        Keep::Recompute => Ok(()),
        Keep::TimeChunks(_) | Keep::InexactTimeChunks(_) => time_chunks::check(&leaves_of(steps), path),
        Keep::ChannelChunks(_) => channel_chunks::check(leaves_of(steps), path),
    }
}

/// Checks that the parts of a chain can be told apart. (Those of a derived one can.)
fn check_names(steps: &[Step], parent: &str) -> Result<()> {
    let mut names = BTreeSet::new();
    match steps.iter().filter_map(Step::name).find(|name| !names.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(wrong(format!("two parts of the chain `{parent}` are called `{name}`"))),
    }
}

fn wrong(what: String) -> Error {
    Error::Plan { what }
}

struct Fit<'a> {
    plan: &'a Plan,
    applied: BTreeSet<&'a str>,
    outermost: Vec<String>,
    paths: Vec<String>,
}

impl<'a> Fit<'a> {
    /// Goes through a chain; `around` is the innermost segment that it is in.
    fn walk(&mut self, composition: &Composition, parent: &str, around: Option<(&str, Keep)>) -> Result<()> {
        let steps = composition.steps();
        check_names(steps, parent)?;
        let path = |name: &str| joined(parent, name);
        let mut covered: Vec<Option<(&'a str, &'a Segment)>> = vec![None; steps.len()];
        for (key, segment) in self.plan.segments() {
            let Some(range) = positions(steps, key, &path) else { continue };
            if let Some((around, _)) = around.filter(|(_, keep)| keep.chunks().is_some()) {
                return Err(wrong(format!(
                    "`{key}` is inside of `{around}`, which is run in chunks: a chunk is one segment"
                )));
            }
            check_keep(&steps[range.clone()], key, segment.keep)?;
            if let (Keep::InexactTimeChunks(_), Some((around, _))) = (segment.keep, around) {
                return Err(wrong(format!(
                    "`{key}` goes by the statistics of its chunks, which the first pass of `{around}` around it does not; \
                     take it out of there"
                )));
            }
            self.applied.insert(key);
            if around.is_none() {
                self.outermost.push(key.to_owned());
            }
            for step in &mut covered[range] {
                if let Some((other, _)) = step {
                    return Err(wrong(format!(
                        "`{key}` and `{other}` overlap: a part is in one segment of its chain"
                    )));
                }
                *step = Some((key, segment));
            }
        }
        for (step, segment) in steps.iter().zip(covered) {
            let around = segment.map(|(key, segment)| (key, segment.keep)).or(around);
            match step {
                Step::Part { name, part, .. } => {
                    let inside = path(name);
                    self.paths.push(inside.clone());
                    if let Some(composition) = part.composition() {
                        self.walk(&composition, &inside, around)?;
                    }
                }
                Step::Join { branches, .. } => {
                    branches.iter().try_for_each(|branch| self.walk(branch, parent, around))?;
                }
            }
        }
        Ok(())
    }
}

/// Which steps of a chain a plan's key names; `None`: none of them.
fn positions(steps: &[Step], key: &str, path: &dyn Fn(&str) -> String) -> Option<std::ops::Range<usize>> {
    let at = |wanted: &dyn Fn(&str) -> bool| steps.iter().position(|step| step.name().is_some_and(wanted));
    match key.split_once("..") {
        None => at(&|name| path(name) == key).map(|first| first..first + 1),
        Some((first, last)) => {
            let (first, last) = (at(&|name| path(name) == first)?, at(&|name| name == last)?);
            (first <= last).then_some(first..last + 1)
        }
    }
}
