//! The layers of `memopt::nn`: values and gradients against PyTorch and against finite differences, windows in chunks
//! against whole windows, numbers of threads, errors.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod chunks;
mod errors;
mod fixtures;
mod foreign;
mod gradients;
mod initial;
mod linear_maps;
mod packed;
mod parity;
mod running;
mod support;
