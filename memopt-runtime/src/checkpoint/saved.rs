//! Plans in files, each with the model that it was made for.

use super::planned::check_plan;
use crate::fnv::{fnv, BEGIN};
use crate::module::{Checkpointable, Composition, Step};
use crate::parameters::parameters;
use crate::path::joined;
use crate::plan::Plan;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the form of such files.
const VERSION: u32 = 2;

/// A plan and the fingerprint of the model that it was made for, as it is kept in a JSON file.
///
/// ```
/// use candle_core::{DType, Device};
/// use candle_nn::VarMap;
/// use memopt_runtime::checkpoint::SavedPlan;
/// use memopt_runtime::nn::{init::seeded, Linear};
/// use memopt_runtime::plan::{Keep, Plan};
///
/// let vb = seeded(&VarMap::new(), 0, DType::F32, &Device::Cpu);
/// let layers = |n| -> memopt_runtime::Result<_> { Ok(vec![Linear::new(n, n, Default::default(), vb.pp(n))?]) };
/// let (model, other) = (layers(3)?, layers(4)?);
///
/// let text = SavedPlan::new(&model, Plan::new().with("0", Keep::Recompute)).to_json()?;
/// let saved = SavedPlan::from_json(&text)?;
/// assert_eq!(saved.for_model(&model)?.to_string(), "0: gc\n");
/// assert!(saved.for_model(&other).is_err());
/// # Ok::<(), memopt_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPlan {
    version: u32,
    model: String,
    plan: Plan,
    /// Of the plan, so that a damaged one is not taken for another.
    checksum: String,
}

/// What every version says.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl SavedPlan {
    /// A plan for a model.
    pub fn new<M: Checkpointable>(model: &M, plan: Plan) -> Self {
        let checksum = hash(&plan.to_string());
        SavedPlan { version: VERSION, model: fingerprint(model), plan, checksum }
    }

    /// The plan, if it was made for such a model.
    ///
    /// # Errors
    /// If it was made for another one, or does not fit this one.
    pub fn for_model<M: Checkpointable>(&self, model: &M) -> Result<Plan> {
        let now = fingerprint(model);
        if now != self.model {
            return Err(wrong(format!(
                "it was made for another model (fingerprint {}, this one's is {now}: other parts, or parameters of other \
                 shapes); search for a new one, or apply its segments by hand",
                self.model
            )));
        }
        check_plan(model, &self.plan)?;
        Ok(self.plan.clone())
    }

    /// The plan, for whatever model.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// As JSON.
    ///
    /// # Errors
    /// Never, but for what serde may meet.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|e| wrong(e.to_string()))
    }

    /// From JSON.
    ///
    /// # Errors
    /// If it is none, of another version, or not as it was written.
    pub fn from_json(text: &str) -> Result<Self> {
        let none = |e: serde_json::Error| wrong(format!("it is no saved plan: {e}"));
        let Version { version } = serde_json::from_str(text).map_err(none)?;
        if version != VERSION {
            return Err(wrong(format!("it is of version {version}; this memopt reads version {VERSION}")));
        }
        let saved: SavedPlan = serde_json::from_str(text).map_err(none)?;
        let now = hash(&saved.plan.to_string());
        if now != saved.checksum {
            return Err(wrong(format!(
                "the saved plan is not as it was written: its checksum is {}, that of its segments {now}; one that is written \
                 by hand is a `Plan` and needs no fingerprint",
                saved.checksum
            )));
        }
        Ok(saved)
    }

    /// Writes the file: as a whole, or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |e: std::io::Error| wrong(format!("{} cannot be written: {e}", path.display()));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let beside = path.with_file_name(name);
        std::fs::write(&beside, self.to_json()?).map_err(failed)?;
        std::fs::rename(&beside, path).map_err(failed)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or holds no saved plan.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|e| wrong(format!("{} cannot be read: {e}", path.display())))?;
        Self::from_json(&text)
    }
}

fn wrong(what: String) -> Error {
    Error::Plan { what }
}

/// A number for what a model is made of: the names of its parts in their order, the operations of its joins, and the names,
/// shapes and dtypes of its parameters. The values are not in it.
pub fn fingerprint<M: Checkpointable>(model: &M) -> String {
    let mut text = String::new();
    describe(&model.composition().unwrap_or_default(), "", &mut text);
    for (name, tensor) in parameters(model) {
        text.push_str(&format!("{name} {:?} {:?}\n", tensor.dims(), tensor.dtype()));
    }
    hash(&text)
}

fn hash(text: &str) -> String {
    format!("{:016x}", fnv(BEGIN, text))
}

fn describe(composition: &Composition, parent: &str, text: &mut String) {
    for step in composition.steps() {
        match step {
            Step::Part { name, part, .. } => {
                let path = joined(parent, name);
                text.push_str(&path);
                text.push('\n');
                describe(&part.composition().unwrap_or_default(), &path, text);
            }
            Step::Join { op, branches } => {
                text.push_str(&format!("{parent} {op:?} {}\n", branches.len()));
                branches.iter().for_each(|branch| describe(branch, parent, text));
            }
        }
    }
}

/// The parts of a model as a tree, each segment with how it is kept.
pub(super) fn tree(composition: &Composition, plan: &Plan) -> String {
    let mut text = String::new();
    branch(composition, plan, "", 0, &mut text);
    text
}

fn branch(composition: &Composition, plan: &Plan, parent: &str, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for step in composition.steps() {
        match step {
            Step::Part { name, part, compressor } => {
                let path = joined(parent, name);
                let kept = plan.beginning_at(parent, name).map(|(key, last, segment)| {
                    let to = if key == path { String::new() } else { format!(" (to `{last}`)") };
                    let declared = match (&segment.compressor, compressor) {
                        (None, Some(declared)) => format!(" {}", declared.name()),
                        _ => String::new(),
                    };
                    format!("  [{segment}{declared}]{to}")
                });
                text.push_str(&format!("{indent}{name}{}\n", kept.unwrap_or_default()));
                branch(&part.composition().unwrap_or_default(), plan, &path, depth + 1, text);
            }
            Step::Join { op, branches } => {
                text.push_str(&format!("{indent}join({})\n", op.name()));
                for (index, inside) in branches.iter().enumerate() {
                    let what = if inside.steps().is_empty() { " (the input)" } else { "" };
                    text.push_str(&format!("{indent}  branch {}{what}\n", index + 1));
                    branch(inside, plan, parent, depth + 2, text);
                }
            }
        }
    }
}
