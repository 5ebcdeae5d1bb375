//! The macro on token streams: which faults it finds, and what it writes.

mod expansion;
mod faults;

use crate::expand;
use proc_macro2::TokenStream;
use syn::DeriveInput;

/// What the macro writes for `input`.
fn derive(input: TokenStream) -> TokenStream {
    let input: DeriveInput = syn::parse2(input).expect("a struct, an enum or a union");
    expand::derive(&input)
}
