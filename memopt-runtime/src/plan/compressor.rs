//! Compressors by name.

use crate::compress::{Auto, Bit, Byte, Null, Sparse, SpikeCompressor};
use crate::{Error, Result};
use std::str::FromStr;
use std::sync::Arc;

/// One of memopt's compressors, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

const ALL: [(Compressor, &str); 5] = [
    (Compressor::Null, "null"),
    (Compressor::Bit, "bit"),
    (Compressor::Byte, "byte"),
    (Compressor::Sparse, "sparse"),
    (Compressor::Auto, "auto"),
];

impl Compressor {
    /// The compressor itself.
    pub fn build(self) -> Arc<dyn SpikeCompressor> {
        match self {
            Compressor::Null => Arc::new(Null),
            Compressor::Bit => Arc::new(Bit),
            Compressor::Byte => Arc::new(Byte),
            Compressor::Sparse => Arc::new(Sparse),
            Compressor::Auto => Arc::new(Auto),
        }
    }
}

impl std::fmt::Display for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = ALL.iter().find(|(compressor, _)| compressor == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Compressor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = ALL.iter().find(|(_, name)| *name == text).map(|(compressor, _)| *compressor);
        found.ok_or_else(|| Error::Plan {
            what: format!("`{text}` is no compressor; the compressors are: null, bit, byte, sparse, auto"),
        })
    }
}
