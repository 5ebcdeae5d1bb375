//! Compressors by name.

use crate::compress::{Auto, Bit, Byte, Null, Sparse, SpikeCompressor};
use crate::{Error, Result};
use std::str::FromStr;
use std::sync::Arc;

/// A compressor, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compressor {
    /// [`Null`]
    Null,
    /// [`Bit`]
    Bit,
    /// [`Byte`]
    Byte,
    /// [`Sparse`]
    Sparse,
    /// [`Auto`]
    Auto,
    /// One of the user's, by its name; see
    /// [`Planned::with_compressors`](crate::checkpoint::Planned::with_compressors).
    Named(String),
}

const ALL: [(Compressor, &str); 5] = [
    (Compressor::Null, "null"),
    (Compressor::Bit, "bit"),
    (Compressor::Byte, "byte"),
    (Compressor::Sparse, "sparse"),
    (Compressor::Auto, "auto"),
];

impl Compressor {
    /// The compressor itself, if it is one of memopt's.
    pub fn build(&self) -> Option<Arc<dyn SpikeCompressor>> {
        Some(match self {
            Compressor::Null => Arc::new(Null),
            Compressor::Bit => Arc::new(Bit),
            Compressor::Byte => Arc::new(Byte),
            Compressor::Sparse => Arc::new(Sparse),
            Compressor::Auto => Arc::new(Auto),
            Compressor::Named(_) => return None,
        })
    }

    /// The names of memopt's own.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(_, name)| *name)
    }

    /// Its name in a plan.
    pub fn name(&self) -> &str {
        match self {
            Compressor::Named(name) => name,
            other => ALL.iter().find(|(compressor, _)| compressor == other).map_or("", |(_, name)| name),
        }
    }
}

impl std::fmt::Display for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The names that are not memopt's are the user's: whether there is such a compressor is known when the plan meets a
/// model.
impl FromStr for Compressor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(Error::Plan {
                what: format!("`{text}` cannot be the name of a compressor: one word"),
            });
        }
        let found = ALL.iter().find(|(_, name)| *name == text).map(|(compressor, _)| compressor.clone());
        Ok(found.unwrap_or_else(|| Compressor::Named(text.to_owned())))
    }
}
