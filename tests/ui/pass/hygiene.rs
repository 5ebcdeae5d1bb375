//! Every name that the macro could lean on means something else here.

#![no_implicit_prelude]
#![allow(dead_code, non_camel_case_types, unused_imports)]

mod shadows {
    pub mod std {}
    pub mod core {}
    pub mod alloc {}
    pub mod memopt {}
    pub mod candle_core {}
    pub struct Result;
    pub struct Option;
    pub struct Vec;
    pub struct Box;
    pub struct String;
    pub struct Ok;
    pub struct Err;
    pub struct Some;
    pub struct None;
    pub struct Tensor;
    pub struct Visitor;
    pub struct visitor;
    pub struct part;
    pub struct str;
    pub trait Clone {
        fn clone(&self) {}
        fn detached(&self) {}
        fn visit_parameters(&self) {}
        fn enter(self)
        where
            Self: ::core::marker::Sized,
        {
        }
    }
    impl<T: ?::core::marker::Sized> Clone for T {}
    pub trait Parameters {}
}

use self::shadows::*;

#[derive(::std::clone::Clone, ::memopt::Parameters)]
struct Net<M> {
    layer: M,
    list: ::std::vec::Vec<M>,
    visitor: ::candle_nn::Linear,
    #[checkpoint(skip)]
    config: ::std::option::Option<usize>,
}

#[derive(::std::clone::Clone, ::memopt::Parameters)]
enum Either<A, B> {
    Ok(A),
    Err(B),
}

#[derive(::std::clone::Clone, ::memopt::Parameters)]
struct Pair(::candle_nn::Linear, #[checkpoint(skip)] usize);

#[derive(::std::clone::Clone, ::memopt::Parameters)]
struct Empty;

fn holds<M: ::memopt::parameters::Parameters>() {}

fn main() {
    holds::<Either<Net<::candle_nn::Linear>, (Pair, Empty)>>();
}
