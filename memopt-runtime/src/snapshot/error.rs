//! What can go wrong with a snapshot.

use std::io;
use std::path::PathBuf;

/// Why a snapshot was not written or read. An old file is still there then as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file system refused.
    #[error("`{}` cannot be {doing}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, such as "written".
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },

    /// A folder, a device or nothing with a name.
    #[error("`{}` is no regular file; give the path of a file", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },

    /// The file that would be replaced is marked as read-only.
    #[error("`{}` is read-only and is not replaced; make it writable, or save under another name", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },

    /// It is a snapshot, but not as it was written.
    #[error("`{}` is damaged: {damage}; take an earlier one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },

    /// It was written by something else.
    #[error("`{}` is no snapshot of memopt: it does not begin as one; weights of other programs are read by Candle's `safetensors` and `pickle` modules", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },

    /// It was written by another version of memopt.
    #[error("`{}` is a snapshot of version {version}, and this memopt reads version {reads}; take the memopt that wrote it", path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version that is read.
        reads: u32,
    },

    /// A tensor cannot be written.
    #[error("tensor `{name}`: {what}")]
    Tensor {
        /// Its name.
        name: String,
        /// What stands in the way.
        what: String,
    },

    /// A section of the state cannot be written or read.
    #[error("state `{section}`: {what}")]
    State {
        /// Its name.
        section: String,
        /// What is wrong.
        what: String,
    },

    /// Something is asked for that the snapshot does not have.
    #[error("the snapshot has no {kind} `{name}`; it has {}", names(has))]
    Missing {
        /// "tensor" or "state".
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What is there.
        has: Vec<String>,
    },

    /// A store that would keep nothing.
    #[error("a store that keeps no snapshot would delete what it saves; keep one or more")]
    KeepsNone,
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// Bytes are missing at the end.
    #[error("it is cut off, {got} bytes of {expected} or more are there")]
    CutOff {
        /// Bytes that it should have at least.
        expected: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// There are bytes behind its end.
    #[error("it has {got} bytes instead of {expected}")]
    TooLong {
        /// Bytes that it should have.
        expected: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// What it says about its tensors and state cannot be read.
    #[error("its header cannot be read ({what})")]
    Header {
        /// What the parser says.
        what: String,
    },
    /// Bytes were changed.
    #[error("its checksum is {got}, and {expected} was written")]
    Checksum {
        /// The SHA-256 in the file.
        expected: String,
        /// The SHA-256 of the file.
        got: String,
    },
}

/// The first names of a list, as words.
fn names(all: &[String]) -> String {
    const SHOWN: usize = 8;
    let quoted = |name: &String| format!("`{name}`");
    let mut text = all.iter().take(SHOWN).map(quoted).collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => text.push_str("none"),
        n if n > SHOWN => text.push_str(&format!(" and {} more", n - SHOWN)),
        _ => {}
    }
    text
}
