//! `impl Checkpointable`, and what comes with it: Candle's `ModuleT` and, where it is demanded, `TimeChunkable`.

use super::composition;
use super::match_self;
use crate::ast::{Field, Input, Shape, Variant};
use crate::attr::{SEGMENT, TIME_CHUNKS};
use crate::split::{joins_by_method, Split};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, ToTokens};
use syn::{LitStr, WhereClause};

/// The implementations.
pub fn expand(input: &Input, where_clause: Option<&WhereClause>) -> TokenStream {
    let body = match (&input.shape, input.method()) {
        // Refused by the validation.
        (Shape::Union(_), _) => return TokenStream::new(),
        (_, Some(method)) => opaque(input, method),
        (Shape::Struct(fields, _), None) => split(input, fields),
        (Shape::Enum(variants), None) => delegate(input, variants),
    };
    let ident = input.ident;
    let (impl_generics, ty_generics, _) = input.generics.split_for_impl();
    let time_chunkable = input.has(TIME_CHUNKS).then(|| {
        quote! {
            #[automatically_derived]
            #[allow(deprecated)]
            impl #impl_generics ::memopt::__private::TimeChunkable for #ident #ty_generics #where_clause {}
        }
    });
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics ::memopt::__private::Checkpointable for #ident #ty_generics #where_clause {
            #body
        }

        #time_chunkable

        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics ::memopt::__private::ModuleT for #ident #ty_generics #where_clause {
            fn forward_t(
                &self,
                __xs: &::memopt::__private::Tensor,
                __train: ::core::primitive::bool,
            ) -> ::memopt::__private::CandleResult<::memopt::__private::Tensor> {
                ::memopt::__private::forward_t(self, __xs, __train)
            }
        }
    }
}

/// A method is the forward.
fn opaque(input: &Input, method: &LitStr) -> TokenStream {
    // Checked by the validation.
    let method = method.parse::<Ident>().map(|method| composition::method(&method)).unwrap_or_default();
    let forward = forward(&quote!(::memopt::__private::run_method(self, #method, __x, __context)));
    let target = target(input);
    // What a method does with the window is known to its author only.
    let chunkable = time_chunkable(&input.has(TIME_CHUNKS).into_token_stream());
    quote!(#forward #target #chunkable)
}

/// The split is the forward.
fn split(input: &Input, fields: &[Field]) -> TokenStream {
    let steps = input.splits.first().map(Split::steps).unwrap_or_default();
    let forward = forward(&quote!(::memopt::__private::run(self, __x, __context)));
    let composition = composition(&{
        let composition = composition::expand(steps, fields, input.has(TIME_CHUNKS));
        quote!(::core::option::Option::Some(#composition))
    });
    let target = target(input);
    let chunkable = if input.has(TIME_CHUNKS) {
        let parts = fields.iter().filter(|field| !field.skipped()).map(|field| {
            let Field { ty, member, .. } = field;
            quote!(::memopt::__private::is_time_chunkable::<#ty>(&self.#member))
        });
        Some(time_chunkable(&quote!(#(#parts)&&*)))
    } else {
        // What a method does with the window is known to its author only.
        joins_by_method(steps).then(|| time_chunkable(&quote!(false)))
    };
    quote!(#forward #composition #target #chunkable)
}

/// The variant is what runs.
fn delegate(input: &Input, variants: &[Variant]) -> TokenStream {
    let each = |call: &dyn Fn(&Field) -> TokenStream| {
        let arms = variants.iter().flat_map(|variant| {
            variant.fields.iter().map(|field| {
                let (ident, call) = (variant.ident, call(field));
                quote!(Self::#ident(__part) => #call,)
            })
        });
        match_self(variants, arms)
    };
    let method = |name: &str, arguments: TokenStream| {
        let name = Ident::new(name, Span::call_site());
        each(&|field| {
            let ty = field.ty;
            quote!(<#ty as ::memopt::__private::Part>::#name(__part #arguments))
        })
    };
    let forward = forward(&method("feed", quote!(, __x, __context)));
    let composition = composition(&method("parts", TokenStream::new()));
    let channels = for_channels(&method("slice", quote!(, __channels)));
    let layer = channel_layer(&method("layer", TokenStream::new()));
    let norm = window_norm(&method("norm", TokenStream::new()));
    let neuron = window_neuron(&method("neuron", TokenStream::new()));
    let footprint = footprint(&method("takes", quote!(, __x)));
    let target = target(input).unwrap_or_else(|| is_target(&method("target", TokenStream::new())));
    let kind = is_a(&method("kind", quote!(, __type)));
    let chunkable = time_chunkable(&if input.has(TIME_CHUNKS) {
        each(&|field| {
            let ty = field.ty;
            quote!(::memopt::__private::is_time_chunkable::<#ty>(__part))
        })
    } else {
        method("chunkable", TokenStream::new())
    });
    quote!(#forward #composition #channels #layer #norm #neuron #footprint #target #kind #chunkable)
}

fn forward(body: &TokenStream) -> TokenStream {
    quote! {
        fn forward(
            &self,
            __x: ::memopt::__private::Signal,
            __context: &mut ::memopt::__private::Context,
        ) -> ::memopt::__private::Result<::memopt::__private::Signal> {
            #body
        }
    }
}

fn composition(body: &TokenStream) -> TokenStream {
    quote! {
        fn composition(&self) -> ::core::option::Option<::memopt::__private::Composition> {
            #body
        }
    }
}

fn for_channels(body: &TokenStream) -> TokenStream {
    quote! {
        fn for_channels(
            &self,
            __channels: ::core::ops::Range<::core::primitive::usize>,
        ) -> ::memopt::__private::Result<::core::option::Option<::memopt::__private::AnyPart>> {
            #body
        }
    }
}

fn channel_layer(body: &TokenStream) -> TokenStream {
    quote! {
        fn channel_layer(&self) -> ::core::option::Option<&dyn ::memopt::__private::ChannelLayer> {
            #body
        }
    }
}

fn window_norm(body: &TokenStream) -> TokenStream {
    quote! {
        fn window_norm(&self) -> ::core::option::Option<&dyn ::memopt::__private::WindowNorm> {
            #body
        }
    }
}

fn window_neuron(body: &TokenStream) -> TokenStream {
    quote! {
        fn window_neuron(&self) -> ::core::option::Option<&dyn ::memopt::__private::WindowNeuron> {
            #body
        }
    }
}

fn footprint(body: &TokenStream) -> TokenStream {
    quote! {
        fn footprint(
            &self,
            __x: &::memopt::__private::Incoming,
        ) -> ::core::option::Option<::memopt::__private::Footprint> {
            #body
        }
    }
}

/// `is_target` of a type that is marked.
fn target(input: &Input) -> Option<TokenStream> {
    input.has(SEGMENT).then(|| is_target(&quote!(true)))
}

fn is_target(body: &TokenStream) -> TokenStream {
    quote! {
        fn is_target(&self) -> ::core::primitive::bool {
            #body
        }
    }
}

fn is_a(body: &TokenStream) -> TokenStream {
    quote! {
        fn is_a(&self, __type: ::core::any::TypeId) -> ::core::primitive::bool {
            __type == ::core::any::TypeId::of::<Self>() || #body
        }
    }
}

fn time_chunkable(body: &TokenStream) -> TokenStream {
    quote! {
        fn is_time_chunkable(&self) -> ::core::primitive::bool {
            #body
        }
    }
}
