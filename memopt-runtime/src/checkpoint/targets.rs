//! Which parts of a model become segments.

use super::fit;
use crate::module::{Checkpointable, Composition, Part, Step};
use crate::path::joined;
use crate::plan::{Plan, Segment};
use crate::{Error, Result};
use std::any::TypeId;
use std::collections::BTreeSet;

/// Parts of a model: those that are marked, those of a type, those at a path.
///
/// ```
/// use candle_core::{DType, Device};
/// use candle_nn::VarMap;
/// use memopt_runtime::checkpoint::{plan_for, Targets};
/// use memopt_runtime::nn::{init::seeded, BatchNorm, Linear};
/// use memopt_runtime::plan::Keep;
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let layer = Linear::new(3, 3, Default::default(), vb.pp("a"))?;
/// let model = vec![(layer.clone(), BatchNorm::new(3, Default::default(), vb.pp("b"))?); 2];
///
/// let plan = plan_for(&model, &Targets::of::<Linear>().and_at("1.1"), Keep::Recompute)?;
/// assert_eq!(plan.to_string(), "0.0: gc\n1.0: gc\n1.1: gc\n");
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Targets {
    marked: bool,
    types: Vec<(TypeId, &'static str)>,
    paths: BTreeSet<String>,
}

impl Targets {
    /// Those that are marked `#[checkpoint(segment)]`, outermost first: inside of one there is no other.
    pub fn marked() -> Self {
        Targets { marked: true, ..Self::default() }
    }

    /// Those of type `M`, also in an option, a box or an enum; the outermost ones.
    pub fn of<M: Checkpointable>() -> Self {
        Self::default().and_of::<M>()
    }

    /// The one at a path, or a range of parts, as in a [`Plan`].
    pub fn at(path: impl Into<String>) -> Self {
        Self::default().and_at(path)
    }

    /// And those that are marked.
    pub fn and_marked(self) -> Self {
        Targets { marked: true, ..self }
    }

    /// And those of type `M`.
    pub fn and_of<M: Checkpointable>(mut self) -> Self {
        self.types.push((TypeId::of::<M>(), std::any::type_name::<M>()));
        self
    }

    /// And the one at a path, or a range of parts.
    pub fn and_at(mut self, path: impl Into<String>) -> Self {
        self.paths.insert(path.into());
        self
    }
}

/// The plan that keeps all targets in the same way.
///
/// # Errors
/// If there is no part of a type, or at a path, that is named; if targets overlap.
pub fn plan_for<M: Checkpointable>(model: &M, targets: &Targets, how: impl Into<Segment>) -> Result<Plan> {
    let composition = model.composition().unwrap_or_default();
    let search = Search::of(&composition, targets);
    if let Some((_, name)) = targets.types.iter().find(|(ty, _)| !search.seen.contains(ty)) {
        return Err(Error::Plan {
            what: format!("the model has no part of type `{name}`, or only inside of other targets"),
        });
    }
    let plan = search.plan(how.into());
    fit::check(&plan, &composition)?;
    Ok(plan)
}

/// Checks that no target is inside of another, given those that are inside of none.
fn check_apart(plan: &Plan, outermost: Vec<String>) -> Result<()> {
    match plan.segments().find(|(path, _)| !outermost.iter().any(|outer| outer == path)) {
        None => Ok(()),
        Some((path, _)) => Err(Error::Plan {
            what: format!("the target `{path}` is inside of another one; name one of them"),
        }),
    }
}

/// [`plan_for`] the parts that are marked `#[checkpoint(segment)]`; without one, everything is retained.
pub fn plan_for_targets<M: Checkpointable>(model: &M, how: impl Into<Segment>) -> Plan {
    Search::of(&model.composition().unwrap_or_default(), &Targets::marked()).plan(how.into())
}

/// The paths of the targets of a search, in the order of the model; `None`: those that are marked.
///
/// # Errors
/// Those of [`plan_for`]; if a target is inside of another.
pub(crate) fn targets_of<M: Checkpointable>(model: &M, targets: Option<&Targets>) -> Result<Vec<String>> {
    let marked = Targets::marked();
    let plan = match targets {
        Some(targets) => {
            let plan = plan_for(model, targets, crate::plan::Keep::Recompute)?;
            check_apart(&plan, fit::check(&plan, &model.composition().unwrap_or_default())?)?;
            plan
        }
        None => Search::of(&model.composition().unwrap_or_default(), &marked)
            .plan(crate::plan::Keep::Recompute.into()),
    };
    let mut order = Vec::new();
    in_order(&model.composition().unwrap_or_default(), "", &mut order);
    let place = |key: &str| {
        let first = key.split_once("..").map_or(key, |(first, _)| first);
        order.iter().position(|path| path == first)
    };
    let mut keys: Vec<String> = plan.segments().map(|(key, _)| key.to_owned()).collect();
    keys.sort_by_key(|key| place(key));
    Ok(keys)
}

/// The paths of all parts, in the order in which they run.
fn in_order(composition: &Composition, parent: &str, paths: &mut Vec<String>) {
    for step in composition.steps() {
        match step {
            Step::Part { name, part, .. } => {
                let path = joined(parent, name);
                paths.push(path.clone());
                in_order(&part.composition().unwrap_or_default(), &path, paths);
            }
            Step::Join { branches, .. } => branches.iter().for_each(|branch| in_order(branch, parent, paths)),
        }
    }
}

struct Search<'a> {
    targets: &'a Targets,
    found: BTreeSet<String>,
    seen: BTreeSet<TypeId>,
}

impl<'a> Search<'a> {
    fn of(composition: &Composition, targets: &'a Targets) -> Self {
        let mut search = Search { targets, found: targets.paths.clone(), seen: BTreeSet::new() };
        search.walk(composition, "");
        search
    }

    /// What was found, all kept in the same way.
    fn plan(self, how: Segment) -> Plan {
        self.found.into_iter().fold(Plan::new(), |plan, path| plan.with(path, how.clone()))
    }

    fn walk(&mut self, composition: &Composition, parent: &str) {
        for step in composition.steps() {
            match step {
                Step::Part { name, part, .. } => {
                    let path = joined(parent, name);
                    if self.takes(part) {
                        self.found.insert(path);
                    } else if let Some(inside) = part.composition() {
                        self.walk(&inside, &path);
                    }
                }
                Step::Join { branches, .. } => branches.iter().for_each(|branch| self.walk(branch, parent)),
            }
        }
    }

    fn takes(&mut self, part: &Part) -> bool {
        let types: Vec<TypeId> =
            self.targets.types.iter().map(|(ty, _)| *ty).filter(|&ty| part.is_a(ty)).collect();
        let any = !types.is_empty();
        self.seen.extend(types);
        any || (self.targets.marked && part.is_target())
    }
}
