//! Panics of user code become typed errors, so that a training run can report them and go on.

use crate::{Error, Phase, Result};
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs user code; a panic in it is an [`Error::Panicked`]. (With `panic = "abort"` nothing can be caught.)
pub(crate) fn caught<T>(function: &str, phase: Phase, f: impl FnOnce() -> Result<T>) -> Result<T> {
    // What the closure leaves behind is dropped with the function; our own locks are not held while it runs.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let message = message(&*payload);
        Err(Error::Panicked { function: function.to_owned(), phase, message })
    })
}

/// What a panic said.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
