//! Which field types need a bound in the `where` clause, and the clause with them.

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

    /// The `where` clause of `generics` with these bounds and, for a type with type parameters, `Self: Clone`: the
    /// parameters for which the type is `Clone` are known only to its own implementation of `Clone`.
    pub fn augment(self, generics: &Generics) -> Option<WhereClause> {
        let mut generics = generics.clone();
        let cloned = generics.type_params().next().map(|_| parse_quote!(Self: ::core::clone::Clone));
        let predicates = self.predicates.into_iter().chain(cloned);
        let all = &mut generics.make_where_clause().predicates;
        predicates.for_each(|predicate| all.push(predicate));
        if !all.empty_or_trailing() {
            all.push_punct(<Token![,]>::default());
        }
        generics.where_clause.filter(|clause| !clause.predicates.is_empty())
    }
}
