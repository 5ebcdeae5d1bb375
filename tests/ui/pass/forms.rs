//! Every form that a type can have.

use candle_core::Tensor;
use candle_nn::{Activation, Linear};
use memopt::prelude::*;
use std::borrow::Cow;
use std::marker::PhantomData;

#[derive(Clone, Parameters)]
struct Named {
    r#type: Linear,
    r#match: Vec<Option<Box<Linear>>>,
}

#[derive(Clone, Parameters)]
struct Braces {}

#[derive(Clone, Parameters)]
struct Tuple(Linear, #[checkpoint(skip)] usize, (Tensor, [Linear; 2]));

#[derive(Clone, Parameters)]
struct NoFields();

#[derive(Clone, Parameters)]
struct Unit;

#[derive(Clone, Parameters)]
enum Layer {
    Named(Named),
    Activation(Activation),
    r#Unit(Unit),
    Size(#[checkpoint(skip)] usize),
    Recursive(Box<Layer>),
    SelfRecursive(Vec<Self>),
}

#[derive(Clone, Parameters)]
enum Never {}

#[derive(Clone, Parameters)]
struct Generic<'a, M, C: Copy + 'static, const N: usize = 2>
where
    M: Send,
{
    layers: [M; N],
    more: Vec<(M, Linear)>,
    #[checkpoint(skip)]
    config: C,
    #[checkpoint(skip)]
    name: &'a str,
    #[checkpoint(skip)]
    marker: PhantomData<fn(C) -> M>,
}

#[derive(Clone, Parameters)]
struct Tree<M> {
    node: M,
    children: Vec<Tree<M>>,
    left: Option<Box<Self>>,
}

#[derive(Clone, Parameters)]
enum Either<A, B> {
    First(A),
    Second(B),
}

trait Backend {
    type Layer: Clone;
}

#[derive(Clone)]
struct Cpu;

impl Backend for Cpu {
    type Layer = Linear;
}

#[derive(Clone, Parameters)]
struct Associated<B: Backend> {
    layer: B::Layer,
    qualified: <B as Backend>::Layer,
}

// Clone by hand, without a bound on the parameter.
#[derive(Parameters)]
struct Marked<T>(Linear, #[checkpoint(skip)] PhantomData<T>);

impl<T> Clone for Marked<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

struct NotClone;

#[derive(Clone, Parameters)]
struct Borrowed<'a> {
    #[checkpoint(skip)]
    name: Cow<'a, str>,
    #[checkpoint(skip)]
    callback: &'a (dyn Fn(usize) -> usize + Send),
    linear: Linear,
}

fn holds<M: Parameters>() {}

fn main() {
    holds::<(Named, Braces, Tuple, NoFields, Unit, Layer, Never)>();
    holds::<Generic<'static, Linear, u8, 3>>();
    holds::<Tree<Linear>>();
    holds::<Either<Linear, Tree<Tensor>>>();
    holds::<Associated<Cpu>>();
    holds::<Marked<NotClone>>();
    holds::<Borrowed<'_>>();
}
