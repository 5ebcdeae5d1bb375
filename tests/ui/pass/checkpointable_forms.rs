//! Every form that a type that derives `Checkpointable` can have.

use candle_core::{ModuleT, Tensor};
use memopt::module::{Context, Signal, TimeChunkable};
use memopt::prelude::*;
use memopt::Checkpointable;
use memopt::Result;
use std::marker::PhantomData;

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "r#match", time_chunks)]
struct Unit;

impl Unit {
    fn r#match(&self, x: Signal, _: &mut Context) -> Result<Signal> {
        Ok(x)
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct Braces {
    weight: Tensor,
    r#type: Option<Tensor>,
}

impl Braces {
    fn run(&self, x: Signal, _: &mut Context) -> Result<Signal> {
        Ok(x)
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment,)]
#[spatial_split(r#type, match, join,)]
struct Raw {
    r#type: Unit,
    r#match: Vec<Option<Box<Unit>>>,
    join: Unit,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(2, 0)]
struct Tuple(Unit, #[checkpoint(skip)] usize, (Unit, [Braces; 2]));

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
enum Layer {
    Unit(Unit),
    r#Units(Vec<Unit>),
    Recursive(Box<Layer>),
    SelfRecursive(Vec<Self>),
}

#[derive(Clone, Checkpointable)]
enum Never {}

#[derive(Clone, Checkpointable)]
#[spatial_split(layers, join(self.r#mix; (more, last), other))]
struct Generic<'a, M, C: Copy + 'static, const N: usize = 2>
where
    M: Send,
{
    layers: [M; N],
    more: Vec<(M, Unit)>,
    #[checkpoint(compressor = "memopt::compress::Bit")]
    last: M,
    other: Option<Unit>,
    #[checkpoint(skip)]
    config: C,
    #[checkpoint(skip)]
    name: &'a str,
    #[checkpoint(skip)]
    marker: PhantomData<fn(C) -> M>,
}

impl<M: Send, C: Copy, const N: usize> Generic<'_, M, C, N> {
    fn mix(&self, branches: &[Signal], _: &mut Context) -> Result<Signal> {
        let _ = (self.config, self.name);
        Ok(branches[0].clone())
    }
}

#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
#[spatial_split(node, join(add; children, left))]
struct Tree<M> {
    node: M,
    children: Vec<Tree<M>>,
    left: Option<Box<Self>>,
}

#[derive(Clone, Checkpointable)]
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
    type Layer = Unit;
}

#[derive(Clone, Checkpointable)]
#[spatial_split(qualified, layer)]
struct Associated<B: Backend> {
    layer: B::Layer,
    qualified: <B as Backend>::Layer,
}

// Clone by hand, without a bound on the parameter.
#[derive(Checkpointable)]
#[spatial_split(0)]
struct Marked<T>(Unit, #[checkpoint(skip)] PhantomData<fn() -> T>);

impl<T> Clone for Marked<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

struct NotClone;

#[derive(Clone, Checkpointable)]
#[spatial_split(unit)]
struct Borrowed<'a> {
    #[checkpoint(skip)]
    name: std::borrow::Cow<'a, str>,
    unit: Unit,
}

#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct Opaque<M: Checkpointable, T> {
    weight: Tensor,
    model: M,
    list: Vec<T>,
}

impl<M: Checkpointable, T> Opaque<M, T> {
    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        self.model.forward(x, context)
    }
}

fn holds<M: Parameters + Checkpointable + ModuleT>() {}

fn chunks<M: TimeChunkable>() {}

fn main() {
    holds::<Unit>();
    holds::<Braces>();
    holds::<Raw>();
    holds::<Tuple>();
    holds::<Layer>();
    holds::<Never>();
    holds::<Generic<'static, Unit, u8, 3>>();
    holds::<Tree<Unit>>();
    holds::<Either<Unit, Tree<Layer>>>();
    holds::<Associated<Cpu>>();
    holds::<Marked<NotClone>>();
    holds::<Borrowed<'_>>();
    holds::<Opaque<Unit, Tensor>>();
    chunks::<Tree<(Unit, Layer)>>();
}
