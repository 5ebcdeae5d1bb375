//! Training: accumulated steps, their optimizers, what goes wrong, what is saved.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod failures;
mod groups;
mod halves;
mod nets;
mod parity;
mod ranks;
mod scaling;
mod splits;
mod states;
mod suggestions;
mod windows;
