//! Which faults `#[derive(Parameters)]` finds, how many, and that it writes an implementation all the same.
//!
//! The exact words and spans are in the repository's `tests/ui/`.

use super::derive;
use crate::ast::Derive;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{File, Item, LitStr};

/// The messages of the faults in `input`, and the number of implementations written beside them.
fn faults(macro_name: Derive, input: TokenStream) -> (Vec<String>, usize) {
    let file: File = syn::parse2(derive(macro_name, input)).expect("items");
    let mut messages = Vec::new();
    let mut implementations = 0;
    for item in file.items {
        match item {
            Item::Macro(item) => {
                assert!(item.mac.path.segments.last().is_some_and(|last| last.ident == "compile_error"));
                messages.push(item.mac.parse_body::<LitStr>().expect("a message").value());
            }
            Item::Impl(_) => implementations += 1,
            _ => unreachable!("neither a fault nor an implementation"),
        }
    }
    (messages, implementations)
}

/// Asserts that `input` has exactly the faults that contain `expected`, in this order.
fn assert_faults(input: TokenStream, expected: &[&str]) {
    assert_faults_of(Derive::Parameters, input, expected, 1);
}

/// The same of the macro `macro_name`, and the number of implementations.
#[track_caller]
pub fn assert_faults_of(macro_name: Derive, input: TokenStream, expected: &[&str], count: usize) {
    let (messages, implementations) = faults(macro_name, input);
    assert_eq!(messages.len(), expected.len(), "{messages:#?}");
    for (message, expected) in messages.iter().zip(expected) {
        assert!(message.contains(expected), "{message}\ndoes not contain\n{expected}");
    }
    assert_eq!(implementations, count);
}

#[test]
fn valid_input_has_no_fault() {
    assert_faults(
        quote!(
            struct Net {
                linear: Linear,
                #[checkpoint(skip)]
                size: usize,
            }
        ),
        &[],
    );
    assert_faults(
        quote!(
            struct Net {
                linear: Linear,
                #[checkpoint(skip)]
                size: usize,
            }
        ),
        &[],
    );
    assert_faults(
        quote!(
            enum Layer {
                Linear(Linear),
                Size(#[checkpoint(skip)] usize),
            }
        ),
        &[],
    );
    assert_faults(
        quote!(
            enum Never {}
        ),
        &[],
    );
}

#[test]
fn attributes_of_others_are_left_alone() {
    assert_faults(
        quote!(
            #[serde(skip)]
            struct Net {
                #[serde(skip = true)]
                linear: Linear,
            }
        ),
        &[],
    );
}

#[test]
fn a_union_is_one_fault_whatever_it_holds() {
    assert_faults(quote!(#[checkpoint] union Either { #[checkpoint(x)] a: u32 }), &["of a union"]);
}

#[test]
fn a_variant_with_another_number_of_fields_is_refused() {
    assert_faults(
        quote!(
            enum Layer {
                A,
                B(),
                C(X, Y),
                D { x: X },
                E(X),
            }
        ),
        &["`A` has none", "`B` has none", "`C` has 2", "those of `D` have names"],
    );
}

#[test]
fn an_unknown_key_is_refused_with_a_suggestion_where_it_is_close() {
    assert_faults(
        quote!(
            struct Net(#[checkpoint(skp)] X);
        ),
        &["did you mean `skip`?"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint(frozen)] X);
        ),
        &["the key `skip` only"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint(a::skip)] X);
        ),
        &["unknown key `a::skip`"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint(skip, one, two = 2)] X);
        ),
        &["unknown key `one` in `#[checkpoint(skip, one, two = 2)]`", "unknown key `two`"],
    );
}

#[test]
fn an_attribute_without_keys_is_refused() {
    assert_faults(
        quote!(
            struct Net(#[checkpoint] X);
        ),
        &["`#[checkpoint]` has no key"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint()] X);
        ),
        &["`#[checkpoint()]` has no key"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint = "x"] X);
        ),
        &["`#[checkpoint = \"x\"]` has a value"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint("x")] X);
        ),
        &["not a list of keys"],
    );
}

#[test]
fn skip_with_a_value_is_one_fault_also_beside_another_skip() {
    assert_faults(
        quote!(
            struct Net(#[checkpoint(skip = true)] X);
        ),
        &["`skip = true`"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint(skip(a, b))] X);
        ),
        &["`skip(a, b)`"],
    );
    assert_faults(
        quote!(
            struct Net(#[checkpoint(skip, skip = true)] X);
        ),
        &["`skip = true`"],
    );
}

#[test]
fn every_skip_after_the_first_is_refused() {
    let input = quote!(
        struct Net(
            #[checkpoint(skip, skip)]
            #[checkpoint(skip)]
            X,
        );
    );
    assert_faults(input, &["duplicate `skip`", "duplicate `skip`"]);
}

#[test]
fn a_misplaced_attribute_is_one_fault_whatever_it_says() {
    assert_faults(
        quote!(
            #[checkpoint(skp, x = 1)]
            struct Net(X);
        ),
        &["means nothing on a struct"],
    );
    assert_faults(
        quote!(
            #[checkpoint]
            enum Layer {
                X(X),
            }
        ),
        &["means nothing on an enum"],
    );
    assert_faults(
        quote!(
            enum Layer {
                #[checkpoint()]
                X(X),
            }
        ),
        &["means nothing on a variant"],
    );
}

#[test]
fn all_faults_are_reported_at_once() {
    assert_faults(
        quote!(
            #[checkpoint(skip)]
            enum Layer {
                #[checkpoint(skip)]
                A,
                B(#[checkpoint] X, #[checkpoint(x)] Y),
            }
        ),
        &["on an enum", "on a variant", "`A` has none", "`B` has 2", "no key", "unknown key `x`"],
    );
}
