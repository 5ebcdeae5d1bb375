//! `impl Parameters`: the walk over the fields, and the twin.

use super::match_self;
use crate::ast::{Delimiters, Field, Input, Role, Shape, Variant};
use proc_macro2::TokenStream;
use quote::quote;
use syn::WhereClause;

/// The implementation of `Parameters`.
pub fn expand(input: &Input, where_clause: Option<&WhereClause>) -> TokenStream {
    let (visit, detach) = match &input.shape {
        Shape::Struct(fields, delimiters) => {
            (visit_struct(input, fields), detach_struct(input, fields, *delimiters))
        }
        Shape::Enum(variants) => (visit_enum(input, variants), detach_enum(input, variants)),
        // Refused by the validation.
        Shape::Union(_) => return TokenStream::new(),
    };
    let ident = input.ident;
    let (impl_generics, ty_generics, _) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics ::memopt::__private::Parameters for #ident #ty_generics #where_clause {
            fn visit_parameters(&self, __visitor: &mut ::memopt::__private::Visitor<'_>) {
                #visit
            }

            fn detached(&self) -> Self {
                #detach
            }
        }
    }
}

fn visit_struct(input: &Input, fields: &[Field]) -> TokenStream {
    let steps = fields.iter().filter(|field| !field.skipped()).map(|field| {
        let Field { member, step, .. } = field;
        let visit = visit(input, field, &quote!(&self.#member));
        quote! {
            ::memopt::__private::Visitor::enter(__visitor, #step, |__visitor| {
                #visit;
            });
        }
    });
    quote!(#(#steps)*)
}

fn detach_struct(input: &Input, fields: &[Field], delimiters: Delimiters) -> TokenStream {
    let parts = fields.iter().map(|field| {
        let member = &field.member;
        detach(input, field, &quote!(&self.#member))
    });
    match delimiters {
        Delimiters::Braces => {
            let members = fields.iter().map(|field| &field.member);
            quote!(Self { #(#members: #parts,)* })
        }
        Delimiters::Parentheses => quote!(Self(#(#parts,)*)),
        Delimiters::Nothing => quote!(Self),
    }
}

fn visit_enum(input: &Input, variants: &[Variant]) -> TokenStream {
    let arms = variants.iter().flat_map(|variant| {
        variant.fields.iter().map(|field| {
            let ident = variant.ident;
            if field.skipped() {
                quote!(Self::#ident(_) => {})
            } else {
                let visit = visit(input, field, &quote!(__part));
                quote!(Self::#ident(__part) => {
                    #visit;
                })
            }
        })
    });
    match_self(variants, arms)
}

fn detach_enum(input: &Input, variants: &[Variant]) -> TokenStream {
    let arms = variants.iter().flat_map(|variant| {
        variant.fields.iter().map(|field| {
            let ident = variant.ident;
            let part = detach(input, field, &quote!(__part));
            quote!(Self::#ident(__part) => Self::#ident(#part),)
        })
    });
    match_self(variants, arms)
}

/// Visits the field behind the reference `part`.
fn visit(input: &Input, field: &Field, part: &TokenStream) -> TokenStream {
    let ty = field.ty;
    match input.role(field) {
        Role::Part => quote!(<#ty as ::memopt::__private::Part>::visit(#part, __visitor)),
        _ => quote!(<#ty as ::memopt::__private::Parameters>::visit_parameters(#part, __visitor)),
    }
}

/// The twin of the field behind the reference `part`.
fn detach(input: &Input, field: &Field, part: &TokenStream) -> TokenStream {
    let ty = field.ty;
    match input.role(field) {
        Role::Part => quote!(<#ty as ::memopt::__private::Part>::twin(#part)),
        Role::Parameters => quote!(<#ty as ::memopt::__private::Parameters>::detached(#part)),
        Role::Skipped => quote!(<#ty as ::core::clone::Clone>::clone(#part)),
    }
}
