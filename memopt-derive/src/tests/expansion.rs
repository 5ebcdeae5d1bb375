//! What the macro writes for valid input.

use super::derive;
use proc_macro2::TokenStream;
use quote::{quote, ToTokens};
use syn::{Attribute, File, Item, ItemImpl};

/// An example under `examples/expand/` of the repository.
fn example(name: &str) -> File {
    let path = format!("{}/../examples/expand/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the example is there");
    syn::parse_file(&text).expect("the example is Rust")
}

/// The implementations of `Parameters` in a file, each as its tokens.
fn implementations(file: &File) -> Vec<String> {
    let is_parameters = |item: &&ItemImpl| {
        let name = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        name.is_some_and(|name| name.ident == "Parameters")
    };
    let items = file.items.iter().filter_map(|item| match item {
        Item::Impl(item) => Some(item),
        _ => None,
    });
    items.filter(is_parameters).map(|item| item.to_token_stream().to_string()).collect()
}

fn derives_parameters(attributes: &[Attribute]) -> bool {
    let derive = attributes.iter().find(|attribute| attribute.path().is_ident("derive"));
    derive.is_some_and(|derive| derive.to_token_stream().to_string().contains("Parameters"))
}

#[test]
fn the_expanded_example_is_what_the_macro_writes() {
    let written: Vec<String> = example("parameters.rs")
        .items
        .iter()
        .filter(|item| match item {
            Item::Struct(item) => derives_parameters(&item.attrs),
            Item::Enum(item) => derives_parameters(&item.attrs),
            _ => false,
        })
        .map(|item| derive(item.to_token_stream()).to_string())
        .collect();
    assert_eq!(written.len(), 3);
    assert_eq!(written, implementations(&example("parameters_expanded.rs")));
}

/// The `where` clause that the macro writes.
fn where_clause(input: TokenStream) -> String {
    let item: ItemImpl = syn::parse2(derive(input)).expect("one implementation");
    item.generics.where_clause.map(|clause| clause.to_token_stream().to_string()).unwrap_or_default()
}

fn assert_where(input: TokenStream, predicates: TokenStream) {
    assert_eq!(where_clause(input), predicates.to_string());
}

#[test]
fn only_types_that_mention_a_type_parameter_are_bound() {
    assert_where(
        quote!(
            struct Net {
                linear: Linear,
            }
        ),
        quote!(),
    );
    assert_where(
        quote!(
            struct Net<'a, const N: usize> {
                linear: [Linear<'a>; N],
            }
        ),
        quote!(),
    );
    assert_where(
        quote!(
            struct Net<M, C> {
                linear: Linear,
                own: M,
                list: Vec<(M, Linear)>,
                #[checkpoint(skip)]
                config: C,
            }
        ),
        quote!(where
            M: ::memopt::__private::Parameters,
            Vec<(M, Linear)>: ::memopt::__private::Parameters,
            C: ::core::clone::Clone,
            Self: ::core::clone::Clone,),
    );
}

#[test]
fn each_bound_is_written_once_after_the_users() {
    assert_where(
        quote!(
            struct Net<M>
            where
                M: Send,
            {
                first: M,
                second: M,
            }
        ),
        quote!(where
            M: Send,
            M: ::memopt::__private::Parameters,
            Self: ::core::clone::Clone,),
    );
}

#[test]
fn a_type_that_contains_itself_is_not_bound_by_itself() {
    let bounds = quote!(where M: ::memopt::__private::Parameters, Self: ::core::clone::Clone,);
    assert_where(
        quote!(
            struct Tree<M>(M, Vec<Tree<M>>);
        ),
        bounds.clone(),
    );
    assert_where(
        quote!(
            struct Tree<M>(M, Option<Box<(M, Self)>>);
        ),
        bounds,
    );
}

#[test]
fn a_lifetime_or_a_later_segment_named_like_a_type_parameter_is_none() {
    let bounds = quote!(where Self: ::core::clone::Clone,);
    assert_where(
        quote!(
            struct Net<'M, M>(Holder<'M>, parts::M, #[checkpoint(skip)] ::M);
        ),
        bounds,
    );
}

#[test]
fn parameters_of_associated_types_are_found() {
    assert_where(
        quote!(
            struct Net<B: Backend>(B::Layer, <B as Backend>::Layer);
        ),
        quote!(where
            B::Layer: ::memopt::__private::Parameters,
            <B as Backend>::Layer: ::memopt::__private::Parameters,
            Self: ::core::clone::Clone,),
    );
}
