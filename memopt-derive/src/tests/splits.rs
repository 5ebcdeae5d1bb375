//! Which faults `#[derive(Checkpointable)]` finds, how many, and that it writes the implementations all the same.
//!
//! The exact words and spans are in the repository's `tests/ui/`.

use super::faults::assert_faults_of;
use crate::ast::Derive;
use proc_macro2::TokenStream;
use quote::quote;

/// Asserts that `input` has exactly the faults that contain `expected`, in this order.
#[track_caller]
fn assert_faults(input: TokenStream, expected: &[&str]) {
    assert_faults_of(Derive::Checkpointable, input, expected, 3);
}

/// Asserts the faults of the split `steps` of a struct with the fields `a`, `b` and `c`.
#[track_caller]
fn assert_split(steps: TokenStream, expected: &[&str]) {
    let fields = quote!({ a: A, b: B, c: C });
    assert_faults(quote!(#[spatial_split(#steps)] struct Net #fields), expected);
}

#[test]
fn splits_of_every_form_have_no_fault() {
    assert_split(quote!(c, a, b), &[]);
    assert_split(quote!(c, a, b,), &[]);
    assert_split(quote!(join(add; (a, b), c)), &[]);
    assert_split(quote!(join(add; a, (b), c,)), &[]);
    assert_split(quote!(join(self.mix; (join(mul; a, b)), c)), &[]);
    assert_split(quote!(a, join(iand; b, c)), &[]);
}

#[test]
fn a_field_can_have_any_name() {
    let fields = quote!({ join: A, r#type: B, add: C });
    assert_faults(quote!(#[spatial_split(join(add; add, join), type)] struct Net #fields), &[]);
    assert_faults(quote!(#[spatial_split(join, add, r#type)] struct Net #fields), &[]);
    assert_faults(
        quote!(
            #[spatial_split(1, 0)]
            struct Net(A, B);
        ),
        &[],
    );
}

#[test]
fn a_misspelt_field_is_one_fault_and_its_field_is_none() {
    assert_split(quote!(aa, b, c), &["no field `aa`"]);
    assert_faults(
        quote!(
            #[spatial_split(cnv)]
            struct Net {
                conv: A,
            }
        ),
        &["did you mean `conv`?"],
    );
    assert_faults(
        quote!(
            #[spatial_split(pool)]
            struct Net;
        ),
        &["it has none"],
    );
    assert_split(quote!(0, a, b, c), &["no field `0`"]);
}

#[test]
fn each_field_is_split_or_skipped() {
    assert_split(quote!(a), &["`b` is neither", "`c` is neither"]);
    assert_split(quote!(a, b, join(add; c, a)), &["duplicate `a`"]);
    let input = quote!(
        #[spatial_split(a)]
        struct Net {
            #[checkpoint(skip)]
            a: A,
        }
    );
    assert_faults(input, &["`a` runs in"]);
}

#[test]
fn what_cannot_be_read_is_one_fault_and_its_fields_are_none() {
    assert_split(quote!(a b, c), &["`a b`"]);
    assert_split(quote!((a, b), c), &["parentheses stand around a branch"]);
    assert_split(quote!(a, , b, c), &["`,` in"]);
    assert_split(quote!(, a, b, c), &["`,` in"]);
    assert_split(quote!(a.b, c), &["`a.b`"]);
    assert_split(quote!(jion(add; a, b), c), &["the only step with parentheses"]);
    assert_split(quote!(join(add; a, b) c), &["cannot be read"]);
    assert_split(quote!(join(add; a; b), c), &["`a; b`"]);
    assert_split(quote!("a", b, c), &["a step is a field", "`a` is neither"]);
}

#[test]
fn a_join_has_an_operation_and_two_branches() {
    assert_split(quote!(join(a, b), c), &["no operation"]);
    assert_split(quote!(join(; a, b), c), &["no operation"]);
    assert_split(quote!(join(a), b, c), &["no operation"]);
    assert_split(quote!(join(ad; a, b), c), &["did you mean `add`?"]);
    assert_split(quote!(join(a; b, c)), &["unknown operation `a`", "`a` is neither"]);
    assert_split(quote!(join(self; a, b), c), &["`self` in"]);
    assert_split(quote!(join(self.mix(); a, b), c), &["`self.mix()` in"]);
    assert_split(quote!(join(other.mix; a, b), c), &["`other.mix` in"]);
    assert_split(quote!(join(add; (a, b)), c), &["one branch only"]);
    assert_split(quote!(join(add;), a, b, c), &["no branch"]);
    assert_split(quote!(join(add; a, (), b), c), &["empty branch"]);
    assert_split(quote!(join(iand; a, b, c)), &["joins two branches"]);
}

#[test]
fn the_forward_is_said_once() {
    assert_faults(
        quote!(
            struct Net {
                a: A,
            }
        ),
        &["add `#[spatial_split(a)]`"],
    );
    assert_faults(
        quote!(
            #[spatial_split]
            struct Net {
                a: A,
            }
        ),
        &["has no step"],
    );
    assert_faults(
        quote!(
            #[spatial_split()]
            struct Net {
                a: A,
            }
        ),
        &["has no step"],
    );
    assert_faults(
        quote!(
            #[spatial_split = "a"]
            struct Net {
                a: A,
            }
        ),
        &["a value instead of steps"],
    );
    assert_faults(
        quote!(
            #[spatial_split(a)]
            #[spatial_split(a)]
            struct Net {
                a: A,
            }
        ),
        &["duplicate"],
    );
    let both = quote!(
        #[spatial_split(a)]
        #[checkpoint(forward = "run")]
        struct Net {
            a: A,
        }
    );
    assert_faults(both, &["both say what the forward is"]);
}

#[test]
fn keys_of_types_and_of_fields_are_told_apart() {
    let input = quote!(
        #[checkpoint(skip, segmnt)]
        #[spatial_split(0)]
        struct Net(#[checkpoint(segment)] A);
    );
    assert_faults(input, &["put it on the field", "did you mean `segment`?", "put it on the struct"]);
}

#[test]
fn values_are_strings() {
    assert_faults(
        quote!(
            #[checkpoint(forward = run)]
            struct Net;
        ),
        &["takes a string in quotes"],
    );
    assert_faults(
        quote!(
            #[checkpoint(forward("run"))]
            struct Net;
        ),
        &["takes a value after `=`"],
    );
    assert_faults(
        quote!(
            #[checkpoint(forward = "a::b")]
            struct Net;
        ),
        &["is no name of a method"],
    );
    assert_faults(
        quote!(
            #[checkpoint(forward = "forward")]
            struct Net;
        ),
        &["would call itself"],
    );
    let compressed = |value: TokenStream| {
        quote!(
            #[spatial_split(0)]
            struct Net(#[checkpoint(compressor = #value)] A);
        )
    };
    assert_faults(compressed(quote!("bytes")), &["did you mean `byte`?"]);
    assert_faults(compressed(quote!("")), &["neither a word nor a path"]);
    assert_faults(compressed(quote!("1")), &["neither a word nor a path"]);
    for right in ["auto", "Own", "my::own", "::my::Own<3>"] {
        assert_faults(compressed(quote!(#right)), &[]);
    }
}

#[test]
fn a_compressor_stands_on_a_field_that_a_split_runs() {
    let bit = quote!(#[checkpoint(compressor = "bit")]);
    assert_faults(
        quote!(#[checkpoint(forward = "run")] struct Net(#bit A);),
        &["where a method is the forward"],
    );
    assert_faults(quote!(enum Layer { A(#bit A) }), &["on the field of a variant"]);
    let skipped = quote!(#[spatial_split(a)] struct Net { a: A, #bit #[checkpoint(skip)] b: usize });
    assert_faults(skipped, &["on a skipped field"]);
}

#[test]
fn an_enum_runs_its_variants() {
    assert_faults(
        quote!(
            enum Layer {
                A(A),
                B(Vec<Layer>),
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
    assert_faults(
        quote!(
            #[spatial_split(0)]
            enum Layer {
                A(A),
            }
        ),
        &["means nothing on an enum"],
    );
    assert_faults(
        quote!(
            enum Layer {
                #[spatial_split(0)]
                A(A),
            }
        ),
        &["means nothing on a variant"],
    );
    assert_faults(
        quote!(
            enum Layer {
                A(#[checkpoint(skip)] A),
            }
        ),
        &["nothing to run for `A`"],
    );
    assert_faults(
        quote!(
            #[checkpoint(forward = "run")]
            enum Layer {
                A(#[checkpoint(skip)] A),
            }
        ),
        &[],
    );
    assert_faults(
        quote!(
            enum Layer {
                A,
                B(A, B),
            }
        ),
        &["`A` has none", "`B` has 2"],
    );
}

#[test]
fn a_union_is_one_fault() {
    assert_faults(quote!(#[spatial_split(x)] union Either { #[checkpoint(x)] a: u32 }), &["of a union"]);
}

#[test]
fn a_type_with_faults_is_time_chunkable_if_it_says_so() {
    let input = quote!(
        #[checkpoint(time_chunks, segmnt)]
        #[spatial_split(0)]
        struct Net(A);
    );
    assert_faults_of(Derive::Checkpointable, input, &["did you mean `segment`?"], 4);
}
