//! What the derive macros refuse, with their exact words, and what they must accept.
//!
//! One test, since every run of trybuild builds Candle in a folder of its own.

#[test]
fn the_derive_macros_refuse_and_accept() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/*.rs");
    // Of `Checkpointable`, by topic.
    for topic in ["split", "join", "checkpoint", "types"] {
        cases.compile_fail(format!("tests/ui/{topic}/*.rs"));
    }
}
