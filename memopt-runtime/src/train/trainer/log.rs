//! The log of a training: one JSON object a line.

use crate::{Error, Result};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Log {
    /// Opens the file behind what is there, or makes it.
    ///
    /// `written` is where the snapshot that is gone on from left it: what was written behind it is cut off, and will be written
    /// again. If there is no file then, a new one begins.
    ///
    /// # Errors
    /// If it cannot be opened, or is not the file that was written.
    pub fn open(path: &Path, written: Option<u64>) -> Result<Self> {
        let failed = |e: io::Error| wrong(path, format!("it cannot be opened: {e}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut log = Log { path: path.to_owned(), file, bytes: 0 };
        log.bytes = log.file.metadata().map_err(failed)?.len();
        match written {
            Some(written) if log.bytes > 0 => log.cut(written)?,
            Some(written) if written > 0 => {
                tracing::warn!("the log `{}` is gone; a new one begins", path.display());
            }
            _ => log.end_line().map_err(failed)?,
        }
        log.file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(log)
    }

    fn cut(&mut self, written: u64) -> Result<()> {
        if self.bytes < written || !self.ends_line(written).map_err(|e| self.failed(e))? {
            let what = format!(
                "the snapshot was saved when it had {written} bytes, and it has {} now, or no line ends there: it is another one; \
                 bring the old one back, or give a path where there is none",
                self.bytes
            );
            return Err(wrong(&self.path, what));
        }
        self.file.set_len(written).map_err(|e| self.failed(e))?;
        self.bytes = written;
        Ok(())
    }

    /// Whether a line ends at this length.
    fn ends_line(&mut self, at: u64) -> io::Result<bool> {
        let Some(last) = at.checked_sub(1) else { return Ok(true) };
        self.file.seek(SeekFrom::Start(last))?;
        let mut byte = [0];
        self.file.read_exact(&mut byte)?;
        Ok(byte == *b"\n")
    }

    /// Ends a line that somebody was killed in.
    fn end_line(&mut self) -> io::Result<()> {
        if !self.ends_line(self.bytes)? {
            tracing::warn!("the last line of the log `{}` is torn", self.path.display());
            self.file.write_all(b"\n")?;
            self.bytes += 1;
        }
        Ok(())
    }

    /// Appends a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).map_err(|e| self.failed(e.into()))?;
        text.push(b'\n');
        // At once, so that a line is torn only where the system tears it.
        self.file.write_all(&text).map_err(|e| self.failed(e))?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Brings it to the disk, and gives its length.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn sync(&self) -> Result<u64> {
        self.file.sync_data().map_err(|e| self.failed(e))?;
        Ok(self.bytes)
    }

    fn failed(&self, error: io::Error) -> Error {
        wrong(&self.path, format!("it cannot be written: {error}"))
    }
}

fn wrong(path: &Path, what: String) -> Error {
    Error::Training { part: format!("log `{}`", path.display()), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn what_was_written_behind_the_snapshot_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::open(&path, None).unwrap();
        log.write(&1).unwrap();
        let written = log.sync().unwrap();
        log.write(&2).unwrap();
        drop(log);
        std::fs::write(&path, lines(&path) + "{\"torn").unwrap();
        let mut log = Log::open(&path, Some(written)).unwrap();
        log.write(&3).unwrap();
        assert_eq!(lines(&path), "1\n3\n");
    }

    #[test]
    fn a_new_training_goes_on_behind_an_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "old\n{\"torn").unwrap();
        let mut log = Log::open(&path, None).unwrap();
        log.write(&1).unwrap();
        assert_eq!(lines(&path), "old\n{\"torn\n1\n");
        assert_eq!(log.sync().unwrap(), lines(&path).len() as u64);
    }

    #[test]
    fn another_file_is_refused_and_one_that_is_gone_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "12345\n").unwrap();
        for written in [3, 7] {
            let error = Log::open(&path, Some(written)).unwrap_err().to_string();
            assert!(error.contains("it is another one"), "{error}");
            assert_eq!(lines(&path), "12345\n");
        }
        std::fs::remove_file(&path).unwrap();
        Log::open(&path, Some(7)).unwrap().write(&1).unwrap();
        assert_eq!(lines(&path), "1\n");
        assert!(Log::open(folder.path(), None).is_err());
    }
}
