//! What must be the same where a snapshot is gone on from.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Names and values, as text, of what a training was set up with.
///
/// ```
/// use memopt_runtime::train::Settings;
///
/// let then = Settings::new().with("time steps", 4).with("clip", 1.);
/// let now = Settings::new().with("time steps", 8).with("clip", 1.);
/// assert!(then.check(&then).is_ok());
/// let error = then.check(&now).unwrap_err().to_string();
/// assert!(error.contains("time steps: 4 then, 8 now"), "{error}");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this one, in the place of one of the same name.
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.0.insert(name.into(), value.to_string());
        self
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a training that was set up so can go on under `now`.
    ///
    /// # Errors
    /// [`Error::OtherConfiguration`], with all that differs.
    pub fn check(&self, now: &Settings) -> Result<()> {
        let of = |settings: &Settings, name: &String| match settings.0.get(name) {
            Some(value) => value.clone(),
            None => "not there".to_owned(),
        };
        let names: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let differ = names.into_iter().filter(|name| self.0.get(*name) != now.0.get(*name));
        let words: Vec<String> =
            differ.map(|name| format!("{name}: {} then, {} now", of(self, name), of(now, name))).collect();
        match words.is_empty() {
            true => Ok(()),
            false => Err(Error::OtherConfiguration { differences: words.join("; ") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_differs_is_named_and_what_is_the_same_is_not() {
        let then = Settings::new().with("a", 1).with("b", 2).with("gone", "x").with("same", 0);
        let now = Settings::new().with("a", 1).with("b", 3).with("new", "y").with("same", 0);
        let Err(Error::OtherConfiguration { differences }) = then.check(&now) else { unreachable!() };
        assert_eq!(differences, "b: 2 then, 3 now; gone: x then, not there now; new: not there then, y now");
        assert!(now.check(&now.clone()).is_ok());
    }

    #[test]
    fn they_are_a_map_in_json() {
        let settings = Settings::new().with("b", 1.5).with("a", true);
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(text, r#"{"a":"true","b":"1.5"}"#);
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    }
}
