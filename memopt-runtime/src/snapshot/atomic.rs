//! A file that is replaced as a whole, or not at all.
//!
//! It is written beside the old one under a name of its own, brought to the disk, and renamed; then the folder is brought
//! to the disk. A writer holds a lock on its file, which ends with the process however it ends: a file of such a name
//! without a lock was left by a writer that was killed.

use super::SnapshotError;
use crate::Result;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use tempfile::{Builder, NamedTempFile};

const PREFIX: &str = ".memopt-";
const SUFFIX: &str = ".part";

/// Replaces the file at `path` by what `write` writes.
///
/// # Errors
/// A [`SnapshotError`]; the old file is there then as it was.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    // Behind a link, if there is a file.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    check(&path)?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let failed = |doing| move |source| SnapshotError::Io { path: folder.to_owned(), doing, source };
    remove_left_behind(folder);
    let mut new = locked(folder).map_err(failed("written to"))?;
    write(new.as_file_mut())?;
    new.as_file().sync_all().map_err(failed("written to"))?;
    let cannot = |source| SnapshotError::Io { path: path.clone(), doing: "replaced", source };
    let _file = new.persist(&path).map_err(|e| cannot(e.error))?;
    // A rename is on the disk when its folder is. (On Windows folders cannot be opened.)
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("brought to the disk"))?;
    }
    Ok(())
}

/// Whether a file may be put there.
fn check(path: &Path) -> Result<(), SnapshotError> {
    if path.file_name().is_none() {
        return Err(SnapshotError::NotAFile { path: path.to_owned() });
    }
    match fs::metadata(path) {
        Ok(old) if !old.is_file() => Err(SnapshotError::NotAFile { path: path.to_owned() }),
        Ok(old) if old.permissions().readonly() => Err(SnapshotError::ReadOnly { path: path.to_owned() }),
        // What else there may be shows when it is written.
        _ => Ok(()),
    }
}

/// A new file that others know to be in use.
fn locked(folder: &Path) -> io::Result<NamedTempFile> {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        let mut builder = Builder::new();
        builder.prefix(PREFIX).suffix(SUFFIX);
        // As `File::create` would have it, instead of private.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let new = builder.tempfile_in(folder)?;
        // Where there are no locks, nobody else gets one either, and nothing is taken for left behind.
        let _ = new.as_file().lock();
        // Another writer may have taken it for left behind before it was locked.
        if new.path().exists() {
            return Ok(new);
        }
    }
    Err(io::Error::other("files that are being written are removed by somebody else"))
}

/// Removes what killed writers left, as far as possible: it does no harm.
fn remove_left_behind(folder: &Path) {
    let Ok(files) = fs::read_dir(folder) else { return };
    for path in files.flatten().filter(is_part).map(|file| file.path()) {
        if let Err(error) = remove_if_unused(&path) {
            tracing::warn!("`{}` was left by a writer and cannot be removed: {error}", path.display());
        }
    }
}

fn is_part(file: &fs::DirEntry) -> bool {
    let name = file.file_name();
    let name = name.to_string_lossy();
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

fn remove_if_unused(path: &Path) -> io::Result<()> {
    let gone = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    };
    if !fs::symlink_metadata(path).is_ok_and(|about| about.is_file()) {
        return Ok(());
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) => return gone(e),
    };
    match file.try_lock() {
        // Held until it is removed: its writer, if there is one, makes another.
        Ok(()) => fs::remove_file(path).or_else(gone),
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(e)) => Err(e),
    }
}
