//! A file, checked while it is read.

use super::elements::filled;
use super::header::{check_length, Found, Header, BEGIN, DIGITS, LENGTH, VERSION};
use super::write::{hexadecimal, PIECE};
use super::{Damage, Snapshot, SnapshotError};
use crate::storage::into_tensor;
use crate::Result;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a snapshot. Its tensors are read into the memory where they stay; if the checksum at the end is wrong, they are let go.
///
/// # Errors
/// A [`SnapshotError`].
pub(super) fn read(path: &Path) -> Result<Snapshot> {
    let failed = |source: io::Error| SnapshotError::Io { path: path.to_owned(), doing: "read", source };
    let damaged = |damage: Damage| SnapshotError::Damaged { path: path.to_owned(), damage };
    // Asked before it is opened: that waits for a pipe's other end.
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(SnapshotError::NotAFile { path: path.to_owned() }.into());
    }
    let file = File::open(path).map_err(failed)?;
    // Of what was opened: the name may be another file's by now.
    let size = file.metadata().map_err(failed)?.len();
    let mut from = io::BufReader::with_capacity(PIECE, file);

    let mut all = Vec::new();
    from.by_ref().take(DIGITS.end as u64).read_to_end(&mut all).map_err(failed)?;
    if all.is_empty() {
        return Err(damaged(Damage::Empty).into());
    }
    let begin = all.get(LENGTH..).unwrap_or_default();
    let common = begin.len().min(BEGIN.len());
    if begin[..common] != BEGIN.as_bytes()[..common] {
        return Err(SnapshotError::Foreign { path: path.to_owned() }.into());
    }
    let cut_off = |expected: u64| damaged(Damage::CutOff { expected, got: size });
    if all.len() < DIGITS.end {
        return Err(cut_off(DIGITS.end as u64).into());
    }
    let length = all[..LENGTH].iter().rev().fold(0, |length, &byte| length << 8 | u64::from(byte));
    let end = LENGTH + check_length(length).map_err(damaged)?;
    if size < end as u64 {
        return Err(cut_off(end as u64).into());
    }
    if end < all.len() {
        return Err(damaged(Damage::Header { what: format!("it says that it has {length} bytes") }).into());
    }
    let rest = (end - all.len()) as u64;
    from.by_ref().take(rest).read_to_end(&mut all).map_err(failed)?;
    let (found, bytes) = Header::decode(&all[LENGTH..]).map_err(damaged)?;
    let expected = (end as u64).saturating_add(bytes);
    if size < expected {
        return Err(cut_off(expected).into());
    }
    if size > expected {
        return Err(damaged(Damage::TooLong { expected, got: size }).into());
    }

    let digits = String::from_utf8_lossy(&all[DIGITS]).into_owned();
    all[DIGITS].fill(b'0');
    let mut hashed = Hashed { hash: Sha256::new_with_prefix(&all), from };
    drop(all);
    let mut snapshot = Snapshot::new();
    let version = match found {
        Found::Ours(header) => {
            snapshot = hashed.read_tensors(header).map_err(failed)?;
            VERSION
        }
        Found::OtherVersion(version) => {
            io::copy(&mut hashed.from, &mut hashed.hash).map_err(failed)?;
            version
        }
    };
    let got = hexadecimal(hashed.hash);
    if got != digits {
        return Err(damaged(Damage::Checksum { expected: digits, got }).into());
    }
    if version != VERSION {
        return Err(SnapshotError::OtherVersion { path: path.to_owned(), version, reads: VERSION }.into());
    }
    Ok(snapshot)
}

struct Hashed<R> {
    hash: Sha256,
    from: R,
}

impl<R: Read> Hashed<R> {
    fn read_tensors(&mut self, header: Header) -> io::Result<Snapshot> {
        let mut tensors = BTreeMap::new();
        for entry in header.entries {
            let storage = filled(entry.dtype, entry.bytes, |bytes| self.fill(bytes))?;
            tensors.insert(entry.name, into_tensor(storage, entry.shape, false));
        }
        Ok(Snapshot { tensors, state: header.state })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        for piece in bytes.chunks_mut(PIECE) {
            self.from.read_exact(piece)?;
            self.hash.update(piece);
        }
        Ok(())
    }
}
