//! The faults found in one input, gathered so that one compilation reports them all.

use quote::ToTokens;
use std::fmt::Display;
use syn::{Error, Result};

/// Faults in the order in which they were found.
#[derive(Default)]
pub struct Errors {
    combined: Option<Error>,
}

impl Errors {
    /// Adds the fault `message`, pointing at `tokens`.
    pub fn push(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.add(Error::new_spanned(tokens, message));
    }

    /// Adds a fault that has its span already.
    pub fn add(&mut self, error: Error) {
        match &mut self.combined {
            Some(combined) => combined.combine(error),
            None => self.combined = Some(error),
        }
    }

    /// All faults as one error, or nothing if there was none.
    pub fn finish(self) -> Result<()> {
        self.combined.map_or(Ok(()), Err)
    }
}
