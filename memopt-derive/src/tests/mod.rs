//! The macro on token streams: which faults it finds, and what it writes.

mod expansion;
mod faults;
mod splits;

use crate::ast::Derive;
use crate::expand;
use proc_macro2::TokenStream;
use syn::DeriveInput;

/// What the macro `macro_name` writes for `input`.
fn derive(macro_name: Derive, input: TokenStream) -> TokenStream {
    let input: DeriveInput = syn::parse2(input).expect("a struct, an enum or a union");
    expand::derive(&input, macro_name)
}
