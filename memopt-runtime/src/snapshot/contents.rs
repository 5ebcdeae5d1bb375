//! What a snapshot holds.

use super::{atomic, read, write, SnapshotError};
use crate::Result;
use candle_core::Tensor;
use serde::{de::DeserializeOwned, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Named tensors, and named sections of state as JSON.
///
/// Names are any text. Tensors are of any dtype, shape and layout; they come back contiguous, on the CPU, with the same bits
/// (`-0.0`, payloads of NaN).
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use memopt_runtime::snapshot::{SnapshotError, Snapshot};
/// use memopt_runtime::Error;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.memopt");
/// let mut snapshot = Snapshot::new();
/// snapshot.tensors.insert("bias".into(), Tensor::zeros(4, DType::F32, &Device::Cpu)?);
/// snapshot.set("steps", &17u64)?;
/// snapshot.save(&path)?;
///
/// let snapshot = Snapshot::load(&path)?;
/// assert_eq!(snapshot.tensor("bias")?.dims(), [4]);
/// assert_eq!(snapshot.get::<u64>("steps")?, 17);
///
/// // A damaged file is refused.
/// let mut bytes = std::fs::read(&path)?;
/// *bytes.last_mut().unwrap() ^= 1;
/// std::fs::write(&path, bytes)?;
/// let error = Snapshot::load(&path).unwrap_err();
/// assert!(matches!(error, Error::Snapshot(SnapshotError::Damaged { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The tensors, by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// The sections of state, by name. [`set`](Self::set) and [`get`](Self::get) go by types.
    pub state: BTreeMap<String, Value>,
}

impl Snapshot {
    /// Holds nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a section of the state.
    ///
    /// # Errors
    /// [`SnapshotError::State`] if JSON cannot hold it: infinities and NaN (keep these in an `Option`, or in a tensor), maps
    /// whose keys are no text or integers.
    pub fn set<T: Serialize + ?Sized>(&mut self, section: &str, value: &T) -> Result<()> {
        let failed = |what: String| SnapshotError::State { section: section.to_owned(), what };
        let seen = ciborium::Value::serialized(value).map_err(|e| failed(e.to_string()))?;
        if has_non_finite(&seen) {
            return Err(failed(
                "it holds an infinity or NaN, which JSON cannot; keep it as an `Option`, or in a tensor"
                    .into(),
            )
            .into());
        }
        let json = serde_json::to_value(value).map_err(|e| failed(e.to_string()))?;
        self.state.insert(section.to_owned(), json);
        Ok(())
    }

    /// A section of the state.
    ///
    /// # Errors
    /// [`SnapshotError::Missing`] if there is none; [`SnapshotError::State`] if it is of another type.
    pub fn get<T: DeserializeOwned>(&self, section: &str) -> Result<T> {
        let json = self.state.get(section).ok_or_else(|| SnapshotError::Missing {
            kind: "state",
            name: section.to_owned(),
            has: self.state.keys().cloned().collect(),
        })?;
        let failed = |e: serde_json::Error| SnapshotError::State {
            section: section.to_owned(),
            what: format!("it is not of the type that is asked for: {e}"),
        };
        Ok(T::deserialize(json).map_err(failed)?)
    }

    /// A tensor.
    ///
    /// # Errors
    /// [`SnapshotError::Missing`] if there is none of this name.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let missing = || SnapshotError::Missing {
            kind: "tensor",
            name: name.to_owned(),
            has: self.tensors.keys().cloned().collect(),
        };
        Ok(self.tensors.get(name).ok_or_else(missing)?)
    }

    /// Writes the file, as a whole or not at all, and returns when it is on the disk. Tensors go to the file from where
    /// they are; only those that are not contiguous, or not on the CPU, are copied, one at a time.
    ///
    /// Through a symbolic link, the file behind it is replaced.
    ///
    /// # Errors
    /// A [`SnapshotError`]; what was at the path is still there then. (Should the folder alone not be brought to the disk, the
    /// new file is there.)
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        atomic::replace(path, |file| write::write(self, file, path))
    }

    /// Reads a file. Its bytes are in memory once.
    ///
    /// # Errors
    /// A [`SnapshotError`] that says what is wrong with the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        read::read(path.as_ref())
    }
}

/// Whether there is a number that JSON would turn into `null`.
fn has_non_finite(value: &ciborium::Value) -> bool {
    use ciborium::Value as C;
    match value {
        C::Float(number) => !number.is_finite(),
        C::Array(all) => all.iter().any(has_non_finite),
        C::Map(all) => all.iter().any(|(key, value)| has_non_finite(key) || has_non_finite(value)),
        C::Tag(_, inner) => has_non_finite(inner),
        _ => false,
    }
}
