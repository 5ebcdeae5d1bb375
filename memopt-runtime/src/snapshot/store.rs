//! A folder of numbered snapshots.

use super::{Snapshot, SnapshotError};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

const PREFIX: &str = "step-";
const SUFFIX: &str = ".memopt";

/// A folder of snapshots `step-00000123.memopt`, of which the last ones are kept.
///
/// ```
/// use memopt_runtime::snapshot::{Snapshot, Store};
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let store = Store::open(folder, 2)?;
/// assert!(store.latest()?.found.is_none());
/// for step in [100, 200, 300] {
///     store.save(step, &Snapshot::new())?;
/// }
/// assert_eq!(store.steps()?, [200, 300]);
///
/// // The latest one is damaged: the one before it is taken, and that is said.
/// std::fs::write(store.path(300), "nonsense")?;
/// let latest = store.latest()?;
/// assert_eq!(latest.found.map(|(step, _)| step), Some(200));
/// println!("{}: {}", latest.skipped[0].path.display(), latest.skipped[0].why);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
    keep: usize,
}

/// What [`Store::latest`] found.
#[derive(Debug)]
pub struct Latest {
    /// The snapshot of the highest step that can be read, and its step; `None` if there is none.
    pub found: Option<(u64, Snapshot)>,
    /// Those of higher steps, the highest first, which cannot.
    pub skipped: Vec<Skipped>,
}

/// A file that was passed over.
#[derive(Debug)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
}

/// What [`Store::save`] did.
#[derive(Debug)]
pub struct Saved {
    /// The new file.
    pub path: PathBuf,
    /// Old ones that were deleted.
    pub deleted: Vec<PathBuf>,
    /// Old ones that should have been, and could not.
    pub not_deleted: Vec<Skipped>,
}

impl Store {
    /// A store in a folder, which is made if it is not there, that keeps so many snapshots.
    ///
    /// # Errors
    /// If the folder cannot be made, or `keep` is zero.
    pub fn open(folder: impl Into<PathBuf>, keep: usize) -> Result<Self> {
        let folder = folder.into();
        if keep == 0 {
            return Err(SnapshotError::KeepsNone.into());
        }
        std::fs::create_dir_all(&folder).map_err(|e| failed(&folder, "made", e))?;
        Ok(Store { folder, keep })
    }

    /// The file of a step.
    pub fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{step:08}{SUFFIX}"))
    }

    /// The steps of which there are files, ascending. Whether they can be read, loading shows.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let failed = |e| failed(&self.folder, "read", e);
        let mut steps = Vec::new();
        for file in std::fs::read_dir(&self.folder).map_err(failed)? {
            let name = file.map_err(failed)?.file_name();
            steps.extend(name.to_str().and_then(step_of));
        }
        steps.sort_unstable();
        Ok(steps)
    }

    /// Writes the snapshot of a step, and when it is safe, deletes old ones: of the files of steps up to this one, the last
    /// `keep` stay. Those of later steps stay in any case: [`delete_after`](Self::delete_after) is for going back.
    ///
    /// # Errors
    /// If it cannot be written; nothing is deleted then. That an old one cannot be deleted is no error; the answer says so.
    pub fn save(&self, step: u64, snapshot: &Snapshot) -> Result<Saved> {
        let path = self.path(step);
        snapshot.save(&path)?;
        let mut steps = self.steps()?;
        steps.retain(|&other| other <= step);
        let old = &steps[..steps.len().saturating_sub(self.keep)];
        let (deleted, not_deleted) = self.delete(old);
        Ok(Saved { path, deleted, not_deleted })
    }

    /// The snapshot of the highest step that is whole. Damaged ones, foreign ones and those of other versions are passed over, and the
    /// answer says which and why.
    ///
    /// # Errors
    /// If the folder or a file cannot be read: what is in it may be the latest.
    pub fn latest(&self) -> Result<Latest> {
        let mut skipped = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            let path = self.path(step);
            match Snapshot::load(&path) {
                Ok(snapshot) => return Ok(Latest { found: Some((step, snapshot)), skipped }),
                Err(why) if is_about_contents(&why) => {
                    tracing::warn!("passed over: {why}");
                    skipped.push(Skipped { path, why });
                }
                Err(why) => return Err(why),
            }
        }
        Ok(Latest { found: None, skipped })
    }

    /// Deletes the snapshots of later steps, for training that goes on from an earlier one: they would be taken for the
    /// latest ones. Gives back the deleted ones.
    ///
    /// # Errors
    /// The first that cannot be deleted; the others are deleted.
    pub fn delete_after(&self, step: u64) -> Result<Vec<PathBuf>> {
        let mut later = self.steps()?;
        later.retain(|&other| other > step);
        let (deleted, not_deleted) = self.delete(&later);
        match not_deleted.into_iter().next() {
            Some(first) => Err(first.why),
            None => Ok(deleted),
        }
    }

    fn delete(&self, steps: &[u64]) -> (Vec<PathBuf>, Vec<Skipped>) {
        let (mut deleted, mut not_deleted) = (Vec::new(), Vec::new());
        for path in steps.iter().map(|&step| self.path(step)) {
            match std::fs::remove_file(&path) {
                Ok(()) => deleted.push(path),
                // Another process was faster.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => {
                    let why = failed(&path, "deleted", e);
                    tracing::warn!("{why}");
                    not_deleted.push(Skipped { path, why });
                }
            }
        }
        (deleted, not_deleted)
    }
}

fn failed(path: &Path, doing: &'static str, source: std::io::Error) -> Error {
    SnapshotError::Io { path: path.to_owned(), doing, source }.into()
}

/// The step in a file's name, if the name is one that [`Store::path`] gives.
fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let step = digits.parse().ok()?;
    (format!("{step:08}") == digits).then_some(step)
}

/// Whether a file could be read, and is no snapshot to go on from.
fn is_about_contents(error: &Error) -> bool {
    use SnapshotError::{Damaged, Foreign, NotAFile, OtherVersion};
    matches!(error, Error::Snapshot(Damaged { .. } | Foreign { .. } | NotAFile { .. } | OtherVersion { .. }))
}
