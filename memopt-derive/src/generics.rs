//! Which field types need a bound in the `where` clause, and the clause with them.

use crate::ast::Derive;
use proc_macro2::{Spacing, TokenStream, TokenTree};
use quote::{quote, ToTokens};
use std::collections::BTreeSet;
use syn::{parse_quote, DeriveInput, Generics, Ident, Type, TypeParam, TypeParamBound, WhereClause};
use syn::{PredicateType, Token, WherePredicate};

/// The names that decide whether a field's type needs a bound.
pub struct Names<'a> {
    type_parameters: Vec<&'a Ident>,
    this: &'a Ident,
}

impl<'a> Names<'a> {
    /// The names of `input` and of its type parameters.
    pub fn new(input: &'a DeriveInput) -> Self {
        let type_parameters = input.generics.type_params().map(|parameter: &TypeParam| &parameter.ident);
        Names { type_parameters: type_parameters.collect(), this: &input.ident }
    }

    /// Whether `ty` mentions a type parameter, but not the deriving type itself.
    pub fn needs_bound(&self, ty: &Type) -> bool {
        let tokens = ty.to_token_stream();
        let recursive = || mentions(tokens.clone(), &|ident| ident == self.this || ident == "Self");
        mentions(tokens.clone(), &|ident| self.type_parameters.contains(&ident)) && !recursive()
    }
}

/// Whether `tokens` contain an identifier that starts a path (so not `b` of `a::b`, nor a lifetime's name) and matches.
fn mentions(tokens: TokenStream, matches: &dyn Fn(&Ident) -> bool) -> bool {
    let mut starts_path = true;
    let mut after_colon = false;
    for token in tokens {
        let found = match &token {
            TokenTree::Ident(ident) => starts_path && matches(ident),
            TokenTree::Group(group) => mentions(group.stream(), matches),
            _ => false,
        };
        if found {
            return true;
        }
        let punct = match &token {
            TokenTree::Punct(punct) => Some(punct),
            _ => None,
        };
        let colon = punct.is_some_and(|punct| punct.as_char() == ':');
        starts_path = !(colon && after_colon || punct.is_some_and(|punct| punct.as_char() == '\''));
        after_colon = colon && punct.is_some_and(|punct| punct.spacing() == Spacing::Joint);
    }
    false
}

/// Bounds to add to a `where` clause, each once.
#[derive(Default)]
pub struct Bounds {
    seen: BTreeSet<String>,
    predicates: Vec<WherePredicate>,
}

impl Bounds {
    /// Requires `ty: bound`.
    pub fn insert(&mut self, ty: &Type, bound: TypeParamBound) {
        if self.seen.insert(quote!(#ty: #bound).to_string()) {
            self.require(WherePredicate::Type(PredicateType {
                lifetimes: None,
                bounded_ty: ty.clone(),
                colon_token: <Token![:]>::default(),
                bounds: [bound].into_iter().collect(),
            }));
        }
    }

    /// Adds `predicate` as it is.
    pub fn require(&mut self, predicate: WherePredicate) {
        self.predicates.push(predicate);
    }

    /// The `where` clause of `generics` with these bounds and the supertraits of what `derive` implements, required of
    /// `Self` where they depend on the generic parameters: for which of them the type is `Clone` is known only to its
    /// own implementation of `Clone`.
    pub fn augment(mut self, generics: &Generics, derive: Derive) -> Option<WhereClause> {
        self.predicates.extend(supertraits(generics, derive));
        let mut generics = generics.clone();
        let all = &mut generics.make_where_clause().predicates;
        self.predicates.into_iter().for_each(|predicate| all.push(predicate));
        if !all.empty_or_trailing() {
            all.push_punct(<Token![,]>::default());
        }
        generics.where_clause.filter(|clause| !clause.predicates.is_empty())
    }
}

/// `Parameters: Clone`, and `Checkpointable: Clone + Send + Sync + 'static`.
fn supertraits(generics: &Generics, derive: Derive) -> Option<WherePredicate> {
    let lifetimes = generics.lifetimes().next().is_some();
    match derive {
        Derive::Parameters if has_types(generics) => Some(parse_quote!(Self: ::core::clone::Clone)),
        Derive::Checkpointable if has_types(generics) => Some(parse_quote!(
            Self: ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync + 'static
        )),
        Derive::Checkpointable if lifetimes => Some(parse_quote!(Self: 'static)),
        _ => None,
    }
}

fn has_types(generics: &Generics) -> bool {
    generics.type_params().next().is_some()
}

/// A bound of a type without type parameters that is not checked where it stands, because it has a lifetime of its own.
fn unchecked() -> WherePredicate {
    parse_quote!(for<'unchecked> Self: ::core::clone::Clone)
}

/// The `where` clause of an implementation that needs another one, which has the clause `other`.
///
/// That the type is `Clone` is checked there; here it is only assumed, or else a type that is not would be reported once
/// for each implementation.
pub fn assume_clone(generics: &Generics, other: Option<&WhereClause>) -> Option<WhereClause> {
    if has_types(generics) {
        return other.cloned();
    }
    let unchecked = unchecked();
    Some(match other.cloned() {
        Some(mut clause) => {
            clause.predicates.push(unchecked);
            clause
        }
        None => parse_quote!(where #unchecked,),
    })
}
