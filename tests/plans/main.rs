//! Planned models: every plan trains a model to the same bits, and what a plan cannot do is a typed error.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod dtypes;
mod empty;
mod evaluation;
mod failures;
mod foreign;
mod inputs;
mod joins;
mod kinds;
mod levels;
mod nets;
mod norms;
mod opaque;
mod random;
mod refused;
mod running;
mod shared;
mod states;
mod support;
mod time_chunks;
mod window;
