//! What the derive macro refuses, with its exact words, and what it must accept.
//!
//! One test, since every run of trybuild builds Candle in a folder of its own.

#[test]
fn the_derive_macro_refuses_and_accepts() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/*.rs");
}
