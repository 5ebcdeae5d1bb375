//! Panics of user code become typed errors, so that a training run can report them and go on.

use crate::{Error, Phase, Result};
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Runs user code; a panic in it is an [`Error::Panicked`]. (With `panic = "abort"` nothing can be caught.)
pub(crate) fn caught<T>(function: &str, phase: Phase, f: impl FnOnce() -> Result<T>) -> Result<T> {
    caught_message(f)
        .unwrap_or_else(|message| Err(Error::Panicked { function: function.to_owned(), phase, message }))
}

/// Runs user code; the message of a panic in it.
pub(crate) fn caught_message<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    // What the closure leaves behind is dropped with the function; our own locks are not held while it runs.
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| message(&*payload))
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
