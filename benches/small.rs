//! Small layers beside those of Candle.
#![allow(missing_docs)]
fn main() {}
