//! What stands in front of the tensors' bytes: which tensors there are, the state, the checksum.
//!
//! ```text
//! 8 bytes   length of the JSON, little-endian
//! JSON      {"__metadata__":{"memopt":"{\"format\":\"memopt-snapshot\",\"sha256\":\"<64 digits>\",\"version\":1,...}"},
//!            "<name>":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
//! bytes     of the tensors
//! ```
//!
//! The JSON begins the same way in every version, so that a file tells what it is, and the checksum is at a fixed place.

use super::elements::{byte_len, is_packed};
use super::{Damage, Snapshot, SnapshotError};
use candle_core::{DType, Shape};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The version that is written, and read.
pub(super) const VERSION: u32 = 1;

/// Bytes of the length.
pub(super) const LENGTH: usize = 8;

/// Larger ones are refused by readers of safetensors.
const LARGEST: usize = 100_000_000;

/// How the JSON begins; the digits of the checksum follow.
pub(super) const BEGIN: &str = r#"{"__metadata__":{"memopt":"{\"format\":\"memopt-snapshot\",\"sha256\":\""#;

/// Where the digits of the checksum are in the file.
pub(super) const DIGITS: Range<usize> = LENGTH + BEGIN.len()..LENGTH + BEGIN.len() + 64;

const KEY: &str = "memopt";
const FORMAT: &str = "memopt-snapshot";

/// The name that safetensors has for something else.
const RESERVED: &str = "__metadata__";

/// What is under [`KEY`]. The order of the fields is that in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    format: String,
    sha256: String,
    version: u32,
    state: BTreeMap<String, Value>,
    /// What tensors that are packed below a byte are; their bytes are stored as `U8`.
    packed: BTreeMap<String, PackedForm>,
}

/// What every version has.
#[derive(Deserialize)]
struct Identity {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct PackedForm {
    dtype: String,
    shape: Vec<usize>,
}

/// A tensor in the file.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) bytes: usize,
}

/// The tensors in the order of their bytes, and the state.
pub(super) struct Header {
    pub(super) entries: Vec<Entry>,
    pub(super) state: BTreeMap<String, Value>,
}

/// A header as it was found.
pub(super) enum Found {
    Ours(Header),
    OtherVersion(u32),
}

impl Header {
    /// That of a snapshot.
    ///
    /// # Errors
    /// [`SnapshotError::Tensor`].
    pub(super) fn of(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        let entry = |(name, tensor): (&String, &candle_core::Tensor)| {
            let failed =
                |e: candle_core::Error| SnapshotError::Tensor { name: name.clone(), what: e.to_string() };
            Ok(Entry {
                name: name.clone(),
                dtype: tensor.dtype(),
                shape: tensor.shape().clone(),
                bytes: byte_len(tensor).map_err(failed)?,
            })
        };
        let mut entries = snapshot.tensors.iter().map(entry).collect::<Result<Vec<Entry>, _>>()?;
        // Large elements first, so that each is aligned in the file.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.dtype.size_in_bytes()));
        Ok(Header { entries, state: snapshot.state.clone() })
    }

    /// The length and the JSON, with zeros for the checksum.
    ///
    /// # Errors
    /// [`SnapshotError::State`] and [`SnapshotError::Tensor`] if it could not be read again.
    pub(super) fn encode(&self) -> Result<Vec<u8>, SnapshotError> {
        self.check_state()?;
        let mut packed = BTreeMap::new();
        let mut infos = Vec::new();
        let mut begin = 0;
        for Entry { name, dtype, shape, bytes } in &self.entries {
            let (stored, dims) = if is_packed(*dtype) {
                let form = PackedForm { dtype: dtype.as_str().into(), shape: shape.dims().to_vec() };
                packed.insert(name.clone(), form);
                (Dtype::U8, vec![*bytes])
            } else {
                (Dtype::from(*dtype), shape.dims().to_vec())
            };
            let data_offsets = (begin, begin + bytes);
            begin += bytes;
            infos.push((escaped(name), TensorInfo { dtype: stored, shape: dims, data_offsets }));
        }
        let sha256 = "0".repeat(DIGITS.len());
        let about =
            About { format: FORMAT.into(), sha256, version: VERSION, state: self.state.clone(), packed };
        let unwritable = |what: String| SnapshotError::State { section: "(all)".into(), what };
        let about = serde_json::to_string(&about).map_err(|e| unwritable(e.to_string()))?;
        let metadata = Metadata::new(Some(HashMap::from([(KEY.to_owned(), about)])), infos)
            .map_err(|e| unwritable(e.to_string()))?;
        let mut json = serde_json::to_vec(&metadata).map_err(|e| unwritable(e.to_string()))?;
        // The tensors behind it shall be aligned.
        json.resize(json.len().next_multiple_of(LENGTH), b' ');
        if json.len() > LARGEST {
            return Err(unwritable(format!(
                "it has {} bytes together with the tensors' names, and readers of safetensors take {LARGEST}; keep what is \
                 large in tensors",
                json.len()
            )));
        }
        let mut all = (json.len() as u64).to_le_bytes().to_vec();
        all.append(&mut json);
        Ok(all)
    }

    /// What is written can be read again: too many levels, for one, could not.
    fn check_state(&self) -> Result<(), SnapshotError> {
        for (section, value) in &self.state {
            let failed = |what: String| SnapshotError::State { section: section.clone(), what };
            // As deep as it is in the file.
            let nested = BTreeMap::from([("state", BTreeMap::from([(section, value)]))]);
            let text = serde_json::to_string(&nested).map_err(|e| failed(e.to_string()))?;
            let again: Value = serde_json::from_str(&text)
                .map_err(|e| failed(format!("it could be written, but not be read again: {e}")))?;
            if again["state"][section.as_str()] != *value {
                return Err(failed("JSON does not keep its numbers; write them as text".into()));
            }
        }
        Ok(())
    }

    /// Reads the JSON.
    ///
    /// # Errors
    /// What does not make sense in it.
    pub(super) fn decode(json: &[u8]) -> Result<(Found, u64), Damage> {
        let wrong = |what: String| Damage::Header { what };
        let metadata: Metadata = serde_json::from_slice(json).map_err(|e| wrong(e.to_string()))?;
        let bytes = metadata.data_len() as u64;
        let about = metadata.metadata().as_ref().and_then(|all| all.get(KEY));
        let about = about.ok_or_else(|| wrong(format!("no `{KEY}` in it")))?;
        let identity: Identity = serde_json::from_str(about).map_err(|e| wrong(e.to_string()))?;
        if identity.version != VERSION {
            return Ok((Found::OtherVersion(identity.version), bytes));
        }
        let About { state, mut packed, .. } =
            serde_json::from_str(about).map_err(|e| wrong(e.to_string()))?;
        let mut entries = Vec::new();
        for key in metadata.offset_keys() {
            let info = metadata.info(&key).ok_or_else(|| wrong(format!("no `{key}` in it")))?;
            let name = unescaped(&key);
            let bytes = info.data_offsets.1 - info.data_offsets.0;
            let (dtype, dims) = match packed.remove(&name) {
                Some(form) => {
                    let dtype: DType = form.dtype.parse().map_err(|_| wrong(form.dtype))?;
                    if !is_packed(dtype) {
                        return Err(wrong(format!("`{name}` of {} is no packed tensor", dtype.as_str())));
                    }
                    (dtype, form.shape)
                }
                None => {
                    let dtype = DType::try_from(info.dtype).map_err(|e| wrong(format!("`{name}`: {e}")))?;
                    (dtype, info.shape.clone())
                }
            };
            entries.push(Entry { name, dtype, shape: dims.into(), bytes });
        }
        if let Some(name) = packed.keys().next() {
            return Err(wrong(format!("no tensor `{name}` in it")));
        }
        Ok((Found::Ours(Header { entries, state }), bytes))
    }
}

/// A name that no tensor may have in safetensors gets one more character, and so do those that this would give.
fn escaped(name: &str) -> String {
    match name.starts_with(RESERVED) {
        true => format!("{name}_"),
        false => name.to_owned(),
    }
}

fn unescaped(key: &str) -> String {
    match key.starts_with(RESERVED) {
        true => key.strip_suffix('_').unwrap_or(key).to_owned(),
        false => key.to_owned(),
    }
}

/// Whether a header may be as long as this.
pub(super) fn check_length(length: u64) -> Result<usize, Damage> {
    match usize::try_from(length) {
        Ok(length) if length <= LARGEST => Ok(length),
        _ => Err(Damage::Header { what: format!("it says that it has {length} bytes") }),
    }
}
