#![doc = include_str!("../README.md")]

pub use memopt_derive::Parameters;
pub use memopt_runtime::parameters::Parameters;
pub use memopt_runtime::{autograd, checkpoint, compress, memory, parameters, Error, Phase, Result};

/// What most programs need: `use memopt::prelude::*;`.
pub mod prelude {
    pub use crate::checkpoint::{checkpoint, checkpoint_module, Options};
    pub use crate::compress::{Auto, Bit, Byte, Null, Sparse};
    pub use crate::memory::CountingAllocator;
    pub use crate::parameters::Parameters;
    pub use memopt_derive::Parameters;
}

/// What the derive macros' output refers to; not part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use memopt_runtime::parameters::{Parameters, Visitor};
}
