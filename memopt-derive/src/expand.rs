//! The code that is written for a valid input.

use crate::ast::{Delimiters, Field, Input, Shape, Variant};
use crate::errors::Errors;
use crate::fallback;
use crate::generics::Bounds;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{parse_quote, DeriveInput, Result};

/// The implementation of `Parameters` for `input`, or its faults and a stand-in.
pub fn derive(input: &DeriveInput) -> TokenStream {
    match try_expand(input) {
        Ok(expanded) => expanded,
        Err(error) => fallback::expand(input, &error),
    }
}

fn try_expand(input: &DeriveInput) -> Result<TokenStream> {
    let input = Input::from_syn(input);
    let mut errors = Errors::default();
    input.validate(&mut errors);
    errors.finish()?;
    Ok(match &input.shape {
        Shape::Struct(fields, delimiters) => {
            implementation(&input, fields, &visit_struct(fields), &detach_struct(fields, *delimiters))
        }
        Shape::Enum(variants) => {
            let fields = variants.iter().flat_map(|variant| &variant.fields);
            implementation(&input, fields, &visit_enum(variants), &detach_enum(variants))
        }
        // Refused by the validation.
        Shape::Union(_) => TokenStream::new(),
    })
}

fn implementation<'a>(
    input: &Input,
    fields: impl IntoIterator<Item = &'a Field<'a>>,
    visit: &TokenStream,
    detach: &TokenStream,
) -> TokenStream {
    let ident = input.ident;
    let (impl_generics, ty_generics, _) = input.generics.split_for_impl();
    let mut bounds = Bounds::default();
    for field in fields.into_iter().filter(|field| field.needs_bound) {
        bounds.insert(
            field.ty,
            if field.skipped() {
                parse_quote!(::core::clone::Clone)
            } else {
                parse_quote!(::memopt::__private::Parameters)
            },
        );
    }
    let where_clause = bounds.augment(input.generics);
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

fn visit_struct(fields: &[Field]) -> TokenStream {
    let steps = fields.iter().filter(|field| !field.skipped()).map(|field| {
        let Field { member, step, ty, .. } = field;
        quote! {
            ::memopt::__private::Visitor::enter(__visitor, #step, |__visitor| {
                <#ty as ::memopt::__private::Parameters>::visit_parameters(&self.#member, __visitor);
            });
        }
    });
    quote!(#(#steps)*)
}

fn detach_struct(fields: &[Field], delimiters: Delimiters) -> TokenStream {
    let parts = fields.iter().map(|field| {
        let member = &field.member;
        detach(field, &quote!(&self.#member))
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

fn visit_enum(variants: &[Variant]) -> TokenStream {
    let arms = variants.iter().flat_map(|variant| {
        variant.fields.iter().map(|field| {
            let (ident, ty) = (variant.ident, field.ty);
            if field.skipped() {
                quote!(Self::#ident(_) => {})
            } else {
                quote! {
                    Self::#ident(__part) => {
                        <#ty as ::memopt::__private::Parameters>::visit_parameters(__part, __visitor);
                    }
                }
            }
        })
    });
    match_self(variants, arms)
}

fn match_self(variants: &[Variant], arms: impl Iterator<Item = TokenStream>) -> TokenStream {
    if variants.is_empty() {
        // A reference always has a value; the enum behind it has none.
        quote!(match *self {})
    } else {
        quote!(match self { #(#arms)* })
    }
}

fn detach_enum(variants: &[Variant]) -> TokenStream {
    let arms = variants.iter().flat_map(|variant| {
        variant.fields.iter().map(|field| {
            let ident = variant.ident;
            let part = detach(field, &quote!(__part));
            quote!(Self::#ident(__part) => Self::#ident(#part),)
        })
    });
    match_self(variants, arms)
}

/// The twin of the field behind the reference `part`.
fn detach(field: &Field, part: &TokenStream) -> TokenStream {
    let ty = field.ty;
    if field.skipped() {
        quote!(<#ty as ::core::clone::Clone>::clone(#part))
    } else {
        quote!(<#ty as ::memopt::__private::Parameters>::detached(#part))
    }
}
