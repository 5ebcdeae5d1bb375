//! What the macro writes for valid input.

use super::derive;
use crate::ast::Derive;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{quote, ToTokens};
use syn::{Attribute, File, ImplItem, Item, ItemImpl};

/// An example under `examples/expand/` of the repository.
fn example(name: &str) -> File {
    let path = format!("{}/../examples/expand/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the example is there");
    syn::parse_file(&text).expect("the example is Rust")
}

/// The implementations in `file` that are marked as derived, each as its tokens.
fn implementations(file: &File) -> Vec<String> {
    let derived = |attribute: &Attribute| attribute.path().is_ident("automatically_derived");
    let items = file.items.iter().filter_map(|item| match item {
        Item::Impl(item) if item.attrs.iter().any(derived) => Some(item),
        _ => None,
    });
    items.map(|item| without_trailing_commas(item.to_token_stream()).to_string()).collect()
}

/// The tokens without commas that end a list or a `where` clause, which the formatter adds and removes.
fn without_trailing_commas(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    let is_comma =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ',');
    for token in tokens {
        let token = match token {
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Brace && is_comma(kept.last()) {
                    kept.pop();
                }
                Group::new(group.delimiter(), without_trailing_commas(group.stream())).into()
            }
            other => other,
        };
        kept.push(token);
    }
    if is_comma(kept.last()) {
        kept.pop();
    }
    kept.into_iter().collect()
}

/// Whether the type derives what the macro `name` writes.
fn derives(attributes: &[Attribute], name: &str) -> bool {
    let derive = attributes.iter().find(|attribute| attribute.path().is_ident("derive"));
    derive.is_some_and(|derive| derive.to_token_stream().to_string().contains(name))
}

/// Asserts that the types in the example `file` that derive `name` are expanded as in the example `expanded`.
fn assert_expanded(file: &str, name: &str, macro_name: Derive, expanded: &str) {
    let mut written = Vec::new();
    for item in example(file).items {
        let attributes = match &item {
            Item::Struct(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            _ => continue,
        };
        if derives(attributes, name) {
            let items = derive(macro_name, item.to_token_stream());
            written.extend(implementations(&syn::parse2(items).expect("items")));
        }
    }
    let expected = implementations(&example(expanded));
    assert!(expected.len() >= 3);
    assert_eq!(written, expected);
}

#[test]
fn the_expanded_examples_are_what_the_macros_write() {
    assert_expanded("parameters.rs", "Parameters", Derive::Parameters, "parameters_expanded.rs");
    assert_expanded(
        "checkpointable.rs",
        "Checkpointable",
        Derive::Checkpointable,
        "checkpointable_expanded.rs",
    );
}

/// The `where` clause that the macro writes.
fn where_clause(input: TokenStream) -> String {
    let item: ItemImpl = syn::parse2(derive(Derive::Parameters, input)).expect("one implementation");
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

/// The `where` clauses of the implementations that `#[derive(Checkpointable)]` writes.
fn where_clauses(input: TokenStream) -> Vec<String> {
    let file: File = syn::parse2(derive(Derive::Checkpointable, input)).expect("implementations");
    let clauses = file.items.into_iter().map(|item| match item {
        Item::Impl(item) => item.generics.where_clause.map(|clause| clause.to_token_stream().to_string()),
        _ => unreachable!("only implementations"),
    });
    clauses.map(Option::unwrap_or_default).collect()
}

#[test]
fn the_parts_of_a_checkpointable_type_are_bound_in_all_implementations() {
    let clause = |bound: TokenStream| {
        quote!(where
            Vec<M>: #bound,
            C: ::core::clone::Clone,
            Self: ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync + 'static,)
        .to_string()
    };
    let fields = quote!({ list: Vec<M>, #[checkpoint(skip)] config: C });
    let clauses = where_clauses(quote!(#[spatial_split(list)] struct Net<M, C> #fields));
    assert_eq!(clauses, vec![clause(quote!(::memopt::__private::Checkpointable)); 3]);
    let clauses =
        where_clauses(quote!(#[checkpoint(time_chunks)] #[spatial_split(list)] struct Net<M, C> #fields));
    assert_eq!(clauses, vec![clause(quote!(::memopt::__private::TimeChunkable)); 4]);
    let clauses = where_clauses(quote!(#[checkpoint(forward = "run")] struct Net<M, C> #fields));
    assert_eq!(clauses, vec![clause(quote!(::memopt::__private::Parameters)); 3]);
}

#[test]
fn a_checkpointable_type_without_type_parameters_is_assumed_to_be_clone_in_all_implementations_but_one() {
    let assumed = quote!(where for<'unchecked> Self: ::core::clone::Clone,).to_string();
    let clauses = where_clauses(quote!(
        #[spatial_split(0)]
        struct Net<const N: usize>([Layer; N]);
    ));
    assert_eq!(clauses, ["", &assumed, &assumed]);
    let borrowed = quote!(where Self: 'static,).to_string();
    let assumed = quote!(where Self: 'static, for<'unchecked> Self: ::core::clone::Clone).to_string();
    let clauses = where_clauses(quote!(
        #[spatial_split(0)]
        struct Net<'a>(Layer, #[checkpoint(skip)] &'a str);
    ));
    assert_eq!(clauses, [&borrowed, &assumed, &assumed].map(|clause| clause.as_str()));
}

/// The method `composition` of what `#[derive(Checkpointable)]` writes.
fn composition(input: TokenStream) -> String {
    let file: File = syn::parse2(derive(Derive::Checkpointable, input)).expect("implementations");
    let functions = file.items.into_iter().flat_map(|item| match item {
        Item::Impl(item) => item.items,
        _ => unreachable!("only implementations"),
    });
    let mut bodies = functions.filter_map(|item| match item {
        ImplItem::Fn(item) if item.sig.ident == "composition" => {
            Some(without_trailing_commas(item.block.to_token_stream()).to_string())
        }
        _ => None,
    });
    bodies.next().expect("a composition")
}

#[test]
fn steps_are_written_in_the_order_of_the_split_with_their_names_and_compressors() {
    let input = quote!(
        #[spatial_split(r#type, join(iand; second, (first)))]
        struct Net {
            first: A,
            #[checkpoint(compressor = "my::Own")]
            r#type: B,
            second: C,
        }
    );
    let expected = quote!({
        ::core::option::Option::Some(
            ::memopt::__private::Composition::new()
                .step(<B as ::memopt::__private::Part>::step_with::<my::Own>(&self.r#type, "type"))
                .join(
                    ::memopt::__private::JoinOp::Iand,
                    [
                        ::memopt::__private::Composition::new()
                            .step(<C as ::memopt::__private::Part>::step(&self.second, "second")),
                        ::memopt::__private::Composition::new()
                            .step(<A as ::memopt::__private::Part>::step(&self.first, "first")),
                    ],
                ),
        )
    });
    assert_eq!(composition(input), without_trailing_commas(expected).to_string());
}
