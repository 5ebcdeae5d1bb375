//! Training that is interrupted, killed, or refused, and goes on with the same bits.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod failures;
mod killed;
mod refused;
mod training;
mod windows;
