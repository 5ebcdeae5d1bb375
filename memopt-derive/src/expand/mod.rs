//! The code that is written for a valid input.

mod checkpointable;
mod composition;
mod parameters;

use crate::ast::{Derive, Input, Role, Variant};
use crate::attr::TIME_CHUNKS;
use crate::errors::Errors;
use crate::fallback;
use crate::generics::{self, Bounds};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{parse_quote, DeriveInput, Result, WhereClause};

/// The implementations for `input`, or its faults and stand-ins.
pub fn derive(input: &DeriveInput, derive: Derive) -> TokenStream {
    let input = Input::from_syn(input, derive);
    match try_expand(&input) {
        Ok(expanded) => expanded,
        Err(error) => fallback::expand(&input, &error),
    }
}

fn try_expand(input: &Input) -> Result<TokenStream> {
    let mut errors = Errors::default();
    input.validate(&mut errors);
    errors.finish()?;
    let where_clause = where_clause(input);
    let parameters = parameters::expand(input, where_clause.as_ref());
    Ok(match input.derive {
        Derive::Parameters => parameters,
        Derive::Checkpointable => {
            let where_clause = generics::assume_clone(input.generics, where_clause.as_ref());
            let checkpointable = checkpointable::expand(input, where_clause.as_ref());
            quote!(#parameters #checkpointable)
        }
    })
}

/// The `where` clause of the implementations: what the fields must be for the type to be what it derives.
fn where_clause(input: &Input) -> Option<WhereClause> {
    let mut bounds = Bounds::default();
    for field in input.fields().into_iter().filter(|field| field.needs_bound) {
        let bound = match input.role(field) {
            Role::Part if input.has(TIME_CHUNKS) => parse_quote!(::memopt::__private::TimeChunkable),
            Role::Part => parse_quote!(::memopt::__private::Checkpointable),
            Role::Parameters => parse_quote!(::memopt::__private::Parameters),
            Role::Skipped => parse_quote!(::core::clone::Clone),
        };
        bounds.insert(field.ty, bound);
    }
    bounds.augment(input.generics, input.derive)
}

/// A `match` over the variants of an enum.
fn match_self(variants: &[Variant], arms: impl Iterator<Item = TokenStream>) -> TokenStream {
    if variants.is_empty() {
        // A reference always has a value; the enum behind it has none.
        quote!(match *self {})
    } else {
        quote!(match self { #(#arms)* })
    }
}
