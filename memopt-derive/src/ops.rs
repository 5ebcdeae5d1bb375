//! The operations of `join(op; ...)` that are words.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

/// An operation of memopt's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The sum.
    Add,
    /// The product.
    Mul,
    /// Both fire.
    And,
    /// The second fires and the first does not.
    Iand,
    /// Side by side along the channels.
    Concat,
}

impl Word {
    const ALL: [Word; 5] = [Word::Add, Word::Mul, Word::And, Word::Iand, Word::Concat];

    /// All of them, as they are written.
    pub const NAMES: [&'static str; 5] = ["add", "mul", "and", "iand", "concat"];

    /// The operation that is written `ident`.
    pub fn from_ident(ident: &Ident) -> Option<Self> {
        let mut all = Self::ALL.into_iter().zip(Self::NAMES);
        all.find(|(_, name)| ident == name).map(|(word, _)| word)
    }

    /// The variant of `JoinOp`.
    pub fn expand(self) -> TokenStream {
        match self {
            Word::Add => quote!(::memopt::__private::JoinOp::Add),
            Word::Mul => quote!(::memopt::__private::JoinOp::Mul),
            Word::And => quote!(::memopt::__private::JoinOp::And),
            Word::Iand => quote!(::memopt::__private::JoinOp::Iand),
            Word::Concat => quote!(::memopt::__private::JoinOp::Concat),
        }
    }
}
