//! The compressors that a plan names.

use crate::compress::SpikeCompressor;
use crate::plan::{self, Plan};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The user's compressors, by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Compressors(BTreeMap<String, Arc<dyn SpikeCompressor>>);

impl Compressors {
    pub(super) fn new(given: impl IntoIterator<Item = Arc<dyn SpikeCompressor>>) -> Result<Self> {
        let mut all = Compressors::default();
        for compressor in given {
            let name = compressor.name().to_owned();
            let is_new = matches!(name.parse(), Ok(plan::Compressor::Named(_)));
            if !is_new || all.0.insert(name.clone(), compressor).is_some() {
                return Err(Error::Plan {
                    what: format!(
                        "a compressor of yours is called `{name}`: give it one word that no other has"
                    ),
                });
            }
        }
        Ok(all)
    }

    /// The compressor that a plan names.
    pub(super) fn get(&self, named: &plan::Compressor) -> Result<Arc<dyn SpikeCompressor>> {
        let own = || self.0.get(named.name()).cloned();
        named.build().or_else(own).ok_or_else(|| {
            let mut names: Vec<&str> = plan::Compressor::names().collect();
            names.extend(self.0.keys().map(String::as_str));
            Error::Plan {
                what: format!(
                    "`{named}` is no compressor; the compressors are: {}; one of your own is given to \
                     `Planned::with_compressors` (segments placed by hand know only memopt's)",
                    names.join(", ")
                ),
            }
        })
    }

    /// Whether all are here that a plan names.
    pub(super) fn check(&self, plan: &Plan) -> Result<()> {
        let mut named = plan.segments().filter_map(|(_, segment)| segment.compressor.as_ref());
        named.try_for_each(|compressor| self.get(compressor).map(|_| ()))
    }
}
