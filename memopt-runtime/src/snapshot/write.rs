//! The bytes of a file, from the tensors' own memory.

use super::elements::with_bytes;
use super::header::{Header, DIGITS};
use super::{Snapshot, SnapshotError};
use crate::Result;
use sha2::{Digest, Sha256};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// So many bytes are hashed and written while they are in the cache.
pub(super) const PIECE: usize = 1 << 18;

/// Writes a snapshot. The checksum is known at the end, and goes to its place in the header then: until the file is renamed,
/// nobody reads it.
///
/// # Errors
/// A [`SnapshotError`]; `path` is for its words.
pub(super) fn write(snapshot: &Snapshot, to: &mut (impl Write + Seek), path: &Path) -> Result<()> {
    let failed = |source: io::Error| SnapshotError::Io { path: path.to_owned(), doing: "written", source };
    let header = Header::of(snapshot)?;
    let mut out = Hashed { hash: Sha256::new(), to: io::BufWriter::with_capacity(PIECE, to) };
    out.write(&header.encode()?).map_err(failed)?;
    for entry in &header.entries {
        let tensor = &snapshot.tensors[&entry.name];
        let changed = |what: String| SnapshotError::Tensor { name: entry.name.clone(), what };
        let written = with_bytes(tensor, |bytes| match bytes.len() == entry.bytes {
            true => out.write(bytes),
            false => Err(io::Error::other("its buffer was changed while it was written")),
        });
        written.map_err(|e| changed(e.to_string()))?.map_err(failed)?;
    }
    let Hashed { hash, mut to } = out;
    to.seek(SeekFrom::Start(DIGITS.start as u64)).map_err(failed)?;
    to.write_all(hexadecimal(hash).as_bytes()).map_err(failed)?;
    to.flush().map_err(failed)?;
    Ok(())
}

struct Hashed<W: Write> {
    hash: Sha256,
    to: io::BufWriter<W>,
}

impl<W: Write> Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            self.hash.update(piece);
            self.to.write_all(piece)?;
        }
        Ok(())
    }
}

/// The digits of a hash.
pub(super) fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
