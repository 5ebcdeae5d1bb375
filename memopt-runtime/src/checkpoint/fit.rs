//! Whether a plan fits a model: every segment is there, and will be run as one.

use crate::module::{Composition, Step};
use crate::plan::{Keep, Plan, Segment};
use crate::{Error, Result};
use std::collections::BTreeSet;

/// Checks that the plan names parts of the model, in order, that segments of one chain do not overlap, and that nothing
/// inside of a chunked segment is one.
pub(super) fn check(plan: &Plan, composition: &Composition) -> Result<()> {
    let mut fit = Fit { plan, applied: BTreeSet::new(), paths: Vec::new() };
    fit.walk(composition, "", None)?;
    match plan.segments().find(|(path, _)| !fit.applied.contains(*path)) {
        None => Ok(()),
        Some((path, _)) => {
            let parts = fit.paths.join(", ");
            Err(wrong(format!(
                "the model has no part, or no such range of parts, `{path}`; its parts are: {parts}"
            )))
        }
    }
}

/// Checks that there is one chunk at least.
pub(super) fn check_chunks(path: &str, keep: Keep) -> Result<()> {
    match keep.chunks() {
        Some(0) => Err(wrong(format!("`{path}` in 0 chunks; give 1 or more"))),
        _ => Ok(()),
    }
}

fn wrong(what: String) -> Error {
    Error::Plan { what }
}

struct Fit<'a> {
    plan: &'a Plan,
    applied: BTreeSet<&'a str>,
    paths: Vec<String>,
}

impl<'a> Fit<'a> {
    /// Goes through a chain; `chunked` is the chunked segment around it.
    fn walk(&mut self, composition: &Composition, parent: &str, chunked: Option<&str>) -> Result<()> {
        let steps = composition.steps();
        let path = |name: &str| if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
        let mut covered: Vec<Option<(&'a str, &'a Segment)>> = vec![None; steps.len()];
        for (key, segment) in self.plan.segments() {
            let Some(range) = positions(steps, key, &path) else { continue };
            if let Some(around) = chunked {
                return Err(wrong(format!(
                    "`{key}` is inside of `{around}`, which is run in chunks: a chunk is one segment"
                )));
            }
            check_chunks(key, segment.keep)?;
            self.applied.insert(key);
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
            let chunked = match segment {
                Some((key, segment)) if segment.keep.chunks().is_some() => Some(key),
                _ => chunked,
            };
            match step {
                Step::Part { name, part, .. } => {
                    let inside = path(name);
                    self.paths.push(inside.clone());
                    if let Some(composition) = part.composition() {
                        self.walk(&composition, &inside, chunked)?;
                    }
                }
                Step::Join { branches, .. } => {
                    branches.iter().try_for_each(|branch| self.walk(branch, parent, chunked))?;
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
