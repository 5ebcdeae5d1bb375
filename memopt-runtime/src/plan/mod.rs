//! The plan: how each part of a model is kept for backward. Data, and nothing else.
//!
//! A plan names segments by their paths in the model; what it does not name is retained: not recomputed, its state freed
//! as soon as its own backward is done. It knows no tensors and no layers.
//!
//! ```
//! use memopt_runtime::plan::{Compressor, Keep, Plan};
//!
//! let plan = Plan::new()
//!     .with("features.0", Keep::Recompute)
//!     .with("features.1.proj..neuron", Keep::TimeChunks(2))      // two fields in one segment
//!     .with("features.2", (Keep::Recompute, Compressor::Bit));
//! let text = "features.0: gc\nfeatures.1.proj..neuron: tcgc:2\nfeatures.2: gc bit\n";
//! assert_eq!(plan.to_string(), text);
//! assert_eq!(plan, plan.to_string().parse()?);
//!
//! // In a file, it is a map; serde reads and writes it.
//! let json = serde_json::to_string(&plan)?;
//! assert!(json.contains(r#""features.2":"gc bit""#));
//! assert_eq!(plan, serde_json::from_str(&json)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compressor;
mod serial;

pub use compressor::Compressor;

use crate::path::joined;
use crate::{Error, Result};
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::BTreeSet;
use std::str::FromStr;

/// How a segment is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// Only its compressed input; the rest is computed again in backward.
    Recompute,
    /// The same in so many time chunks, the last one first in backward; the neurons' states at the borders are computed again
    /// too. More chunks than time steps are as many as those.
    TimeChunks(usize),
    /// In so many time chunks, but each batch norm takes the statistics of the chunk alone: **another result** than
    /// that of the unoptimized model, which is what SpikingJelly's time chunks compute. The running statistics move once
    /// for each chunk.
    InexactTimeChunks(usize),
    /// The same in so many groups of output channels over the whole window: for a convolution or linear layer, a norm and
    /// neurons that work each by itself. No states are kept.
    ChannelChunks(usize),
}

impl Keep {
    /// In how many chunks, if in any.
    pub fn chunks(self) -> Option<usize> {
        match self {
            Keep::Recompute => None,
            Keep::TimeChunks(chunks) | Keep::InexactTimeChunks(chunks) | Keep::ChannelChunks(chunks) => {
                Some(chunks)
            }
        }
    }
}

impl std::fmt::Display for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Keep::Recompute => f.write_str("gc"),
            Keep::TimeChunks(chunks) => write!(f, "tcgc:{chunks}"),
            Keep::InexactTimeChunks(chunks) => write!(f, "tcgc-per-chunk:{chunks}"),
            Keep::ChannelChunks(chunks) => write!(f, "ccgc:{chunks}"),
        }
    }
}

impl FromStr for Keep {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "gc" => Ok(Keep::Recompute),
            other => {
                let (kind, chunks) = other.split_once(':').unwrap_or((other, ""));
                match (kind, chunks.parse()) {
                    ("tcgc", Ok(chunks)) if chunks > 0 => Ok(Keep::TimeChunks(chunks)),
                    ("tcgc-per-chunk", Ok(chunks)) if chunks > 0 => Ok(Keep::InexactTimeChunks(chunks)),
                    ("ccgc", Ok(chunks)) if chunks > 0 => Ok(Keep::ChannelChunks(chunks)),
                    _ => Err(Error::Plan {
                        what: format!(
                            "`{other}` is no way to keep a segment; the ways are: gc, tcgc:K, tcgc-per-chunk:K and ccgc:K (K \
                             time or channel chunks, 1 or more; per-chunk: the batch norms of each by itself)"
                        ),
                    }),
                }
            }
        }
    }
}

/// One segment of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// How it is kept.
    pub keep: Keep,
    /// How its input is kept; `None`: as declared in the model, else the smallest exact way.
    pub compressor: Option<Compressor>,
}

impl From<Keep> for Segment {
    fn from(keep: Keep) -> Self {
        Segment { keep, compressor: None }
    }
}

impl From<(Keep, Compressor)> for Segment {
    fn from((keep, compressor): (Keep, Compressor)) -> Self {
        Segment { keep, compressor: Some(compressor) }
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.keep)?;
        self.compressor.as_ref().map_or(Ok(()), |compressor| write!(f, " {compressor}"))
    }
}

impl FromStr for Segment {
    type Err = Error;

    /// The way to keep it, and the compressor of its input after a space, if any: `gc`, `gc bit`, `tcgc:2 null`.
    fn from_str(text: &str) -> Result<Self> {
        let (keep, compressor) = match text.split_once(' ') {
            None => (text, None),
            Some((keep, compressor)) => (keep, Some(compressor.trim().parse()?)),
        };
        Ok(Segment { keep: keep.parse()?, compressor })
    }
}

/// Segments by path. `path.a..b` is the parts from `a` to `b` of the chain at `path` in one segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    segments: BTreeMap<String, Segment>,
}

impl Plan {
    /// Everything is retained.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a segment; one that is at this path already is replaced.
    pub fn with(mut self, path: impl Into<String>, segment: impl Into<Segment>) -> Self {
        self.segments.insert(path.into(), segment.into());
        self
    }

    /// Takes a segment out.
    pub fn without(mut self, path: &str) -> Self {
        self.segments.remove(path);
        self
    }

    /// The segment at this path.
    pub fn get(&self, path: &str) -> Option<&Segment> {
        self.segments.get(path)
    }

    /// Number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether everything is retained.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// What another plan does in another way, by path.
    ///
    /// ```
    /// use memopt_runtime::plan::{Keep, Plan};
    ///
    /// let one = Plan::new().with("a", Keep::Recompute).with("b", Keep::Recompute);
    /// let two = Plan::new().with("b", Keep::TimeChunks(2)).with("c", Keep::Recompute);
    /// let changes: Vec<String> = one.changes_to(&two).iter().map(ToString::to_string).collect();
    /// assert_eq!(changes, ["- a: gc", "~ b: gc -> tcgc:2", "+ c: gc"]);
    /// ```
    pub fn changes_to(&self, other: &Plan) -> Vec<Change> {
        let paths: BTreeSet<&String> = self.segments.keys().chain(other.segments.keys()).collect();
        let change = |path: &String| Change {
            path: path.clone(),
            before: self.segments.get(path).cloned(),
            after: other.segments.get(path).cloned(),
        };
        paths.into_iter().map(change).filter(|change| change.before != change.after).collect()
    }

    /// Adds a segment where there is none yet: what is read from a file says it once.
    fn add(&mut self, path: String, segment: Segment) -> Result<()> {
        match self.segments.entry(path) {
            Entry::Vacant(entry) => {
                entry.insert(segment);
                Ok(())
            }
            Entry::Occupied(entry) => {
                Err(Error::Plan { what: format!("`{}` is in the plan twice; keep one of them", entry.key()) })
            }
        }
    }

    /// The segments, by path.
    pub fn segments(&self) -> impl Iterator<Item = (&str, &Segment)> {
        self.segments.iter().map(|(path, segment)| (path.as_str(), segment))
    }

    /// Whether there are segments inside of these parts of `parent`.
    pub(crate) fn has_segments_inside<'a>(
        &self,
        parent: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        let prefixes: Vec<String> = names.into_iter().map(|name| joined(parent, name) + ".").collect();
        self.segments.keys().any(|key| prefixes.iter().any(|prefix| key.starts_with(prefix.as_str())))
    }

    /// The segment that begins with the part `name` inside `parent`: its key, the name of its last part, and itself.
    pub(crate) fn beginning_at(&self, parent: &str, name: &str) -> Option<(&str, &str, &Segment)> {
        let path = joined(parent, name);
        if let Some((key, segment)) = self.segments.get_key_value(&path) {
            return Some((key, &key[key.len() - name.len()..], segment));
        }
        let range = format!("{path}..");
        let (key, segment) = self.segments.range(range.clone()..).next()?;
        key.strip_prefix(&range).map(|last| (key.as_str(), last, segment))
    }
}

/// What one plan does with a path and another does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Path of the segment.
    pub path: String,
    /// In the first plan.
    pub before: Option<Segment>,
    /// In the second.
    pub after: Option<Segment>,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.path;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "~ {path}: {before} -> {after}"),
            (Some(before), None) => write!(f, "- {path}: {before}"),
            (None, Some(after)) => write!(f, "+ {path}: {after}"),
            (None, None) => write!(f, "= {path}"),
        }
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.segments.iter().try_for_each(|(path, segment)| writeln!(f, "{path}: {segment}"))
    }
}

impl FromStr for Plan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut plan = Plan::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (path, segment) = line
                .split_once(": ")
                .ok_or_else(|| Error::Plan { what: format!("`{line}` is not of the form `path: way`") })?;
            plan.add(path.to_owned(), segment.parse()?)?;
        }
        Ok(plan)
    }
}
