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
    pub struct Signal;
    pub struct Context;
    pub struct Composition;
    pub struct JoinOp;
    pub struct Bit;
    pub struct composition;
    pub struct str;
    pub struct bool;
    pub trait Clone {
        fn clone(&self) {}
        fn detached(&self) {}
        fn forward(&self) {}
        fn forward_t(&self) {}
        fn run(&self) {}
        fn step(&self) {}
        fn join(self)
        where
            Self: ::core::marker::Sized,
        {
        }
        fn composition(&self) {}
        fn is_target(&self) {}
        fn is_time_chunkable(&self) {}
        fn visit_parameters(&self) {}
    }
    impl<T: ?::core::marker::Sized> Clone for T {}
    pub trait Send {}
    pub trait Sync {}
    pub trait Parameters {}
    pub trait Checkpointable {}
    pub trait TimeChunkable {}
    pub trait ModuleT {}
}

use self::shadows::*;

type Output = ::memopt::Result<::memopt::module::Signal>;

#[derive(::std::clone::Clone, ::memopt::Checkpointable)]
#[checkpoint(forward = "walk", segment, time_chunks)]
struct Walk;

impl Walk {
    fn walk(&self, x: ::memopt::module::Signal, _: &mut ::memopt::module::Context) -> Output {
        ::std::result::Result::Ok(x)
    }
}

#[derive(::std::clone::Clone, ::memopt::Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(composition, join(add; context, (x, list)), join(self.mix; m, n))]
struct Net<M> {
    composition: M,
    #[checkpoint(compressor = "bit")]
    context: Walk,
    #[checkpoint(compressor = "::memopt::compress::Auto")]
    x: Walk,
    list: ::std::vec::Vec<M>,
    m: ::std::option::Option<M>,
    n: Walk,
    #[checkpoint(skip)]
    config: ::std::option::Option<usize>,
}

impl<M> Net<M> {
    fn mix(&self, _: &[::memopt::module::Signal], _: &mut ::memopt::module::Context) -> Output {
        ::std::result::Result::Ok(::memopt::module::Signal::Tuple(::std::vec::Vec::new()))
    }
}

#[derive(::std::clone::Clone, ::memopt::Checkpointable)]
enum Either<A, B> {
    Ok(A),
    Err(B),
}

#[derive(::std::clone::Clone, ::memopt::Checkpointable)]
#[spatial_split(0)]
struct Pair(Walk, #[checkpoint(skip)] usize);

fn holds<M: ::memopt::Checkpointable + ::candle_core::ModuleT>() {}

fn main() {
    holds::<Either<Net<Walk>, Pair>>();
}
