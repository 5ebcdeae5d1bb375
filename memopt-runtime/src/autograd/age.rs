//! The order in which tensors were made.
//!
//! Candle numbers tensors from a process-wide counter but keeps the number private; its `Hash` shows it. A unit test
//! holds Candle to that.

use crate::{Error, Result};
use candle_core::{DType, Device, Tensor, TensorId};
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

/// When a tensor was made: later ones compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(u64);

impl Age {
    /// Earlier than every tensor.
    pub(crate) const START: Age = Age(0);

    /// Later than every tensor made so far, and earlier than every one made from now on.
    ///
    /// # Errors
    /// If this release of Candle does not number tensors in order: then nothing could be said about captured tensors.
    pub(crate) fn now() -> Result<Self> {
        static ORDERED: OnceLock<bool> = OnceLock::new();
        let new = || Ok::<_, Error>(Self::of(Tensor::zeros((), DType::U8, &Device::Cpu)?.id()));
        let (earlier, now) = (new()?, new()?);
        match ORDERED.get_or_init(|| Age::START < earlier && earlier < now) {
            true => Ok(now),
            false => Err(Error::Candle(candle_core::Error::Msg(
                "memopt does not work with this release of candle-core: tensors are not numbered in order"
                    .into(),
            ))),
        }
    }

    /// The age of a tensor.
    pub(crate) fn of(id: TensorId) -> Self {
        let mut reader = Reader(0);
        id.hash(&mut reader);
        Age(reader.0)
    }
}

/// Keeps the last word written to it.
struct Reader(u64);

impl Hasher for Reader {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = u64::from_le_bytes(word);
        }
    }

    fn write_usize(&mut self, word: usize) {
        self.0 = word as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_numbered_in_the_order_they_are_made() -> Result<()> {
        let before = Tensor::zeros((), DType::F32, &Device::Cpu)?;
        let now = Age::now()?;
        let after = Tensor::zeros((), DType::F32, &Device::Cpu)?;
        assert!(Age::of(before.id()) < now && now < Age::of(after.id()));
        Ok(())
    }
}
