//! What is written for an input with faults: the faults, and an implementation all the same, so that code that uses
//! the type as `Parameters` does not fail a second time.

use crate::generics::Bounds;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{parse_quote, Data, DeriveInput, Error};

/// The faults in `error` and a stand-in for the implementation.
pub fn expand(input: &DeriveInput, error: &Error) -> TokenStream {
    let ident = &input.ident;
    let (impl_generics, ty_generics, _) = input.generics.split_for_impl();
    let mut bounds = Bounds::default();
    if let Data::Union(_) = input.data {
        // Whether a refused union is Clone does not matter. A bound with a lifetime of its own is not checked here.
        bounds.require(parse_quote!(for<'workaround> Self: ::core::clone::Clone));
    }
    let where_clause = bounds.augment(&input.generics);
    let error = error.to_compile_error();
    quote! {
        #error

        #[automatically_derived]
        impl #impl_generics ::memopt::__private::Parameters for #ident #ty_generics #where_clause {
            fn visit_parameters(&self, _: &mut ::memopt::__private::Visitor<'_>) {}

            fn detached(&self) -> Self {
                ::core::clone::Clone::clone(self)
            }
        }
    }
}
