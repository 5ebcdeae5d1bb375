//! What was done in another way than asked.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sentences, each once, in alphabetical order. A new one is also an event.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes(Arc<Mutex<BTreeSet<String>>>);

impl Notes {
    pub(super) fn add(&self, note: String) {
        let mut notes = self.0.lock();
        if !notes.contains(&note) {
            tracing::warn!("{note}");
            notes.insert(note);
        }
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.0.lock().iter().cloned().collect()
    }
}
