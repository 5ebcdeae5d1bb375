//! The expression of a `Composition`: what `#[spatial_split(...)]` says, as a chain of calls.

use crate::ast::Field;
use crate::compressor::Compressor;
use crate::ops::Word;
use crate::split::{name, Op, Step};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;

/// The composition of `steps` over `fields`; `time_chunks`: methods that join do so step by step.
pub fn expand(steps: &[Step], fields: &[Field], time_chunks: bool) -> TokenStream {
    let steps = steps.iter().map(|step| match step {
        Step::Field(member) => {
            let step = name(member);
            let step = fields.iter().find(|field| field.step == step).map(part);
            quote!(.step(#step))
        }
        Step::Join(join) => {
            let op = op(&join.op, time_chunks);
            let branches = join.branches.iter().map(|branch| expand(&branch.steps, fields, time_chunks));
            quote!(.join(#op, [#(#branches),*]))
        }
        // Refused by the validation.
        Step::Unreadable(_) => TokenStream::new(),
    });
    quote!(::memopt::__private::Composition::new() #(#steps)*)
}

fn part(field: &Field) -> TokenStream {
    let Field { member, step, ty, .. } = field;
    match field.compressor().map(Compressor::from_text) {
        Some(Ok(compressor)) => {
            let compressor = compressor.expand();
            quote!(<#ty as ::memopt::__private::Part>::step_with::<#compressor>(&self.#member, #step))
        }
        _ => quote!(<#ty as ::memopt::__private::Part>::step(&self.#member, #step)),
    }
}

fn op(op: &Op, time_chunks: bool) -> TokenStream {
    match op {
        Op::Word(word) => Word::from_ident(word).map(Word::expand).unwrap_or_default(),
        Op::Method(ident) => {
            let name = ident.unraw().to_string();
            let method = method(ident);
            let chunkable = time_chunks.then(|| quote!(.time_chunkable()));
            quote!(::memopt::__private::join_method(#name, self, #method) #chunkable)
        }
        // Refused by the validation.
        Op::Missing | Op::Unreadable(_) => TokenStream::new(),
    }
}

/// `Self::method`, all of it at the method's place, so that the compiler points there if there is no such method.
pub fn method(method: &Ident) -> TokenStream {
    let span = Span::call_site().located_at(method.span());
    quote_spanned!(span=> Self::#method)
}
