//! Derive macros of memopt.
//!
//! The stages, one file or folder each: the input as a typed view (`ast`, with the attributes as they are written in
//! `attr` and `split`, and the words in them in `ops` and `compressor`), every rule (`valid`), the code that is written
//! (`expand`, with its bounds in `generics`), and what is written instead where a rule is broken (`fallback`).

mod ast;
mod attr;
mod compressor;
mod errors;
mod expand;
mod fallback;
mod generics;
mod ops;
mod similar;
mod split;
mod valid;

#[cfg(test)]
mod tests;

use ast::Derive;
use proc_macro::TokenStream;
use syn::{parse_macro_input, DeriveInput};

/// Implements `memopt::Parameters`: a walk over the trained tensors, and the detached twin.
///
/// For structs of every form, and for enums whose variants each hold exactly one unnamed field. The type must be
/// `Clone`.
///
/// - A field's name is a step of the path, without the `r#` of a raw identifier; a tuple struct's steps are `0`, `1`, ...;
///   an enum's variant adds nothing.
/// - `#[checkpoint(skip)]` on a field: it holds no parameters. It is cloned into the twin and not visited, and its type
///   need not be `Parameters`.
/// - Field types that mention a type parameter are required to be `Parameters` (skipped ones: `Clone`) in the `where`
///   clause; so `struct Block<M> { conv: M }` is `Parameters` where `M` is.
///
/// The repository's `examples/expand/parameters_expanded.rs` shows what is written for `examples/expand/parameters.rs`.
#[proc_macro_derive(Parameters, attributes(checkpoint))]
pub fn derive_parameters(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::derive(&input, Derive::Parameters).into()
}

/// Implements `memopt::Checkpointable`, `memopt::Parameters` and Candle's `ModuleT`.
///
/// `memopt::Checkpointable`, where this is re-exported, documents the attributes with examples. The repository's
/// `examples/expand/checkpointable_expanded.rs` shows what is written for `examples/expand/checkpointable.rs`.
#[proc_macro_derive(Checkpointable, attributes(checkpoint, spatial_split))]
pub fn derive_checkpointable(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::derive(&input, Derive::Checkpointable).into()
}
