//! One byte an element, for tensors of small integers such as spike counts.
#![allow(unsafe_code)]

use super::bytes_loops;
use super::element::Element;
use super::level::SimdLevel;
use super::memory;
use super::parallel::{self, TASK_ELEMENTS};

/// A tensor of integers in `0..=255`, one byte an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    integers: Vec<u8>,
}

impl Bytes {
    /// Packs `elements`; `None` if one of them is not exactly an integer in `0..=255`. That is found while packing, and
    /// rules out `-0.0`, NaN and fractions.
    pub fn pack<E: Element>(level: SimdLevel, elements: &[E]) -> Option<Self> {
        // SAFETY: the chunks of both sides pair up and cover everything, and a successful `pack` writes all of its.
        let integers = unsafe {
            memory::written(elements.len(), |output| {
                let tasks = elements.chunks(TASK_ELEMENTS).zip(output.chunks_mut(TASK_ELEMENTS));
                parallel::all(size_of_val(elements), tasks, |(input, output)| {
                    bytes_loops::pack(level, input, output)
                })
            })
        }?;
        Some(Self { integers })
    }

    /// The elements, in any type.
    pub fn unpack<E: Element>(&self, level: SimdLevel) -> Vec<E> {
        let bytes = self.integers.len() * size_of::<E>();
        // SAFETY: the chunks of both sides pair up and cover everything, and `unpack` writes all of its.
        let elements = unsafe {
            memory::written(self.integers.len(), |output| {
                let tasks = self.integers.chunks(TASK_ELEMENTS).zip(output.chunks_mut(TASK_ELEMENTS));
                parallel::all(bytes, tasks, |(input, output)| {
                    bytes_loops::unpack(level, input, output);
                    true
                })
            })
        };
        elements.unwrap_or_default()
    }

    /// The integers.
    pub fn integers(&self) -> &[u8] {
        &self.integers
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.integers.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.integers.is_empty()
    }

    /// Heap bytes kept.
    pub fn bytes(&self) -> usize {
        self.integers.capacity()
    }
}
