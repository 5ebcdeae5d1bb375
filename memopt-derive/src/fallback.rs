//! What is written for an input with faults: the faults, and implementations all the same, so that code that uses the
//! type does not fail a second time.

use crate::ast::{Derive, Input, Shape};
use crate::attr::TIME_CHUNKS;
use crate::generics::{self, Bounds};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{parse_quote, Error, WhereClause};

/// The faults in `error` and stand-ins for the implementations.
pub fn expand(input: &Input, error: &Error) -> TokenStream {
    let error = error.to_compile_error();
    let where_clause = where_clause(input);
    let parameters = parameters(input, where_clause.as_ref());
    let checkpointable = match input.derive {
        Derive::Parameters => TokenStream::new(),
        Derive::Checkpointable => {
            let where_clause = generics::assume_clone(input.generics, where_clause.as_ref());
            checkpointable(input, where_clause.as_ref())
        }
    };
    quote!(#error #parameters #checkpointable)
}

fn parameters(input: &Input, where_clause: Option<&WhereClause>) -> TokenStream {
    let ident = input.ident;
    let (impl_generics, ty_generics, _) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics ::memopt::__private::Parameters for #ident #ty_generics #where_clause {
            fn visit_parameters(&self, _: &mut ::memopt::__private::Visitor<'_>) {}

            fn detached(&self) -> Self {
                ::core::clone::Clone::clone(self)
            }
        }
    }
}

fn checkpointable(input: &Input, where_clause: Option<&WhereClause>) -> TokenStream {
    let ident = input.ident;
    let (impl_generics, ty_generics, _) = input.generics.split_for_impl();
    let time_chunkable = input.has(TIME_CHUNKS).then(|| {
        quote! {
            #[automatically_derived]
            impl #impl_generics ::memopt::__private::TimeChunkable for #ident #ty_generics #where_clause {}
        }
    });
    quote! {
        #[automatically_derived]
        impl #impl_generics ::memopt::__private::Checkpointable for #ident #ty_generics #where_clause {
            fn forward(
                &self,
                __x: ::memopt::__private::Signal,
                _: &mut ::memopt::__private::Context,
            ) -> ::memopt::__private::Result<::memopt::__private::Signal> {
                ::core::result::Result::Ok(__x)
            }
        }

        #time_chunkable

        #[automatically_derived]
        impl #impl_generics ::memopt::__private::ModuleT for #ident #ty_generics #where_clause {
            fn forward_t(
                &self,
                __xs: &::memopt::__private::Tensor,
                _: ::core::primitive::bool,
            ) -> ::memopt::__private::CandleResult<::memopt::__private::Tensor> {
                ::core::result::Result::Ok(::core::clone::Clone::clone(__xs))
            }
        }
    }
}

fn where_clause(input: &Input) -> Option<WhereClause> {
    let mut bounds = Bounds::default();
    if let Shape::Union(_) = input.shape {
        // What a refused union is does not matter. A bound with a lifetime of its own is not checked here.
        bounds.require(match input.derive {
            Derive::Parameters => parse_quote!(for<'workaround> Self: ::core::clone::Clone),
            Derive::Checkpointable => parse_quote!(
                for<'workaround> Self: ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync + 'static
            ),
        });
    }
    bounds.augment(input.generics, input.derive)
}
