//! Checks of an optimizer's numbers.

use crate::{Error, Result};

/// An error unless a number is finite and at least 0.
pub(super) fn at_least_zero(part: &str, name: &str, value: f64) -> Result<()> {
    match value.is_finite() && value >= 0. {
        true => Ok(()),
        false => Err(wrong(part, format!("{name} is {value}; a finite number of at least 0 expected"))),
    }
}

/// An error unless a number is in [0, 1).
pub(super) fn below_one(part: &str, name: &str, value: f64) -> Result<()> {
    match (0. ..1.).contains(&value) {
        true => Ok(()),
        false => Err(wrong(part, format!("{name} is {value}; a number in [0, 1) expected"))),
    }
}

pub(super) fn wrong(part: &str, what: impl Into<String>) -> Error {
    Error::Training { part: part.to_owned(), what: what.into() }
}
