//! Spiking neurons over the whole window, each as one function over all its time steps.
//!
//! ```text
//! h[t] = charge(v[t-1], x[t])          membrane potential before firing
//! s[t] = 1 if h[t] >= v_threshold, else 0
//! v[t] = reset(h[t], s[t])             hard: v_reset where it fired; soft: h - v_threshold s
//! ```
//!
//! Shapes: `x` and `s` are `[T, N, ...]`, `v` is `[N, ...]`. Equations, defaults and gradients are SpikingJelly's.
//!
//! - `firing`: threshold, reset, surrogate; `charge`: how `x` moves `v`. Together they are what one step does, forward and
//!   backward (`step`), on a block of neurons.
//! - `tiles`: how the neurons of a window are shared out to threads; `passes`: the loops over all tiles.
//! - `window`: the function over all steps; `raw`: the same on raw buffers.
//! - `fixed`: how a neuron without parameters is a layer.
//! - `lif`, `if_`, `plif`: the neurons. `psn` is another kind: its steps depend on all others.

mod charge;
mod firing;
mod fixed;
mod if_;
mod lif;
mod passes;
mod plif;
mod psn;
mod raw;
mod step;
mod tiles;
mod window;

#[cfg(test)]
mod tests;

pub use firing::Reset;
pub use if_::If;
pub use lif::Lif;
pub use plif::Plif;
pub use psn::Psn;

use crate::module::{Context, Footprint, Incoming, Work};

/// What neurons take: the potential after the last step exists for a moment, and is computed again in backward.
pub(super) fn footprint(x: &Incoming) -> Footprint {
    let v = x.elements() / x.dims.first().copied().unwrap_or(1).max(1) * x.dtype.size_in_bytes().max(4);
    let forward = Work::moving(2 * x.bytes()).with_scratch(v);
    let backward = Work::moving(3 * x.bytes());
    Footprint { forward, backward, state: v, ..Footprint::elementwise(x).keeping_input() }
}

/// How errors call the layer that runs: its path, or its type if it is the whole model.
pub(super) fn name_of(context: &Context, kind: &str) -> String {
    match context.path() {
        "" => kind.to_owned(),
        path => path.to_owned(),
    }
}
