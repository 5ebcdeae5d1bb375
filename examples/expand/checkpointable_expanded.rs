//! What `#[derive(Checkpointable)]` writes for the model in `checkpointable.rs`.
//!
//! Paths are absolute, so that nothing in the user's scope can be mistaken for them. Each field's type stands in the
//! code as the user wrote it, so that the compiler points there if it is not `Checkpointable`. `for<'unchecked>` keeps
//! the compiler from reporting a type that is not `Clone` more than once: `impl Parameters` is where it is checked.

use candle_core::{Device, ModuleT, Result, Tensor};
use memopt::module::{Context, Signal};
use memopt::Checkpointable;

/// Multiplies by a factor: a method is the forward.
#[derive(Clone)]
struct Gain {
    factor: Tensor,
}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::Parameters for Gain {
    fn visit_parameters(&self, __visitor: &mut ::memopt::__private::Visitor<'_>) {
        ::memopt::__private::Visitor::enter(__visitor, "factor", |__visitor| {
            <Tensor as ::memopt::__private::Parameters>::visit_parameters(&self.factor, __visitor);
        });
    }

    fn detached(&self) -> Self {
        Self { factor: <Tensor as ::memopt::__private::Parameters>::detached(&self.factor) }
    }
}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::Checkpointable for Gain
where
    for<'unchecked> Self: ::core::clone::Clone,
{
    fn forward(
        &self,
        __x: ::memopt::__private::Signal,
        __context: &mut ::memopt::__private::Context,
    ) -> ::memopt::__private::Result<::memopt::__private::Signal> {
        ::memopt::__private::run_method(self, Self::run, __x, __context)
    }

    fn is_time_chunkable(&self) -> ::core::primitive::bool {
        true
    }
}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::TimeChunkable for Gain where for<'unchecked> Self: ::core::clone::Clone {}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::ModuleT for Gain
where
    for<'unchecked> Self: ::core::clone::Clone,
{
    fn forward_t(
        &self,
        __xs: &::memopt::__private::Tensor,
        __train: ::core::primitive::bool,
    ) -> ::memopt::__private::CandleResult<::memopt::__private::Tensor> {
        ::memopt::__private::forward_t(self, __xs, __train)
    }
}

impl Gain {
    fn run(&self, x: Signal, context: &mut Context) -> memopt::Result<Signal> {
        Ok(x.into_dense(context.path())?.broadcast_mul(&self.factor)?.into())
    }
}

/// Layers, whatever they are, beside a shortcut, and the larger of two gains.
#[derive(Clone)]
struct Block<M> {
    layers: Vec<M>,
    gain: Gain,
    shortcut: Option<M>,
    left: Gain,
    right: Gain,
    name: &'static str,
}

#[automatically_derived]
#[allow(deprecated)]
impl<M> ::memopt::__private::Parameters for Block<M>
where
    Vec<M>: ::memopt::__private::Checkpointable,
    Option<M>: ::memopt::__private::Checkpointable,
    Self: ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync + 'static,
{
    fn visit_parameters(&self, __visitor: &mut ::memopt::__private::Visitor<'_>) {
        ::memopt::__private::Visitor::enter(__visitor, "layers", |__visitor| {
            <Vec<M> as ::memopt::__private::Part>::visit(&self.layers, __visitor);
        });
        ::memopt::__private::Visitor::enter(__visitor, "gain", |__visitor| {
            <Gain as ::memopt::__private::Part>::visit(&self.gain, __visitor);
        });
        ::memopt::__private::Visitor::enter(__visitor, "shortcut", |__visitor| {
            <Option<M> as ::memopt::__private::Part>::visit(&self.shortcut, __visitor);
        });
        ::memopt::__private::Visitor::enter(__visitor, "left", |__visitor| {
            <Gain as ::memopt::__private::Part>::visit(&self.left, __visitor);
        });
        ::memopt::__private::Visitor::enter(__visitor, "right", |__visitor| {
            <Gain as ::memopt::__private::Part>::visit(&self.right, __visitor);
        });
    }

    fn detached(&self) -> Self {
        Self {
            layers: <Vec<M> as ::memopt::__private::Part>::twin(&self.layers),
            gain: <Gain as ::memopt::__private::Part>::twin(&self.gain),
            shortcut: <Option<M> as ::memopt::__private::Part>::twin(&self.shortcut),
            left: <Gain as ::memopt::__private::Part>::twin(&self.left),
            right: <Gain as ::memopt::__private::Part>::twin(&self.right),
            name: <&'static str as ::core::clone::Clone>::clone(&self.name),
        }
    }
}

#[automatically_derived]
#[allow(deprecated)]
impl<M> ::memopt::__private::Checkpointable for Block<M>
where
    Vec<M>: ::memopt::__private::Checkpointable,
    Option<M>: ::memopt::__private::Checkpointable,
    Self: ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync + 'static,
{
    fn forward(
        &self,
        __x: ::memopt::__private::Signal,
        __context: &mut ::memopt::__private::Context,
    ) -> ::memopt::__private::Result<::memopt::__private::Signal> {
        ::memopt::__private::run(self, __x, __context)
    }

    fn composition(&self) -> ::core::option::Option<::memopt::__private::Composition> {
        ::core::option::Option::Some(
            ::memopt::__private::Composition::new()
                .join(
                    ::memopt::__private::JoinOp::Add,
                    [
                        ::memopt::__private::Composition::new()
                            .step(<Vec<M> as ::memopt::__private::Part>::step(&self.layers, "layers"))
                            .step(
                                <Gain as ::memopt::__private::Part>::step_with::<::memopt::__private::Bit>(
                                    &self.gain, "gain",
                                ),
                            ),
                        ::memopt::__private::Composition::new()
                            .step(<Option<M> as ::memopt::__private::Part>::step(&self.shortcut, "shortcut")),
                    ],
                )
                .join(
                    ::memopt::__private::join_method("larger", self, Self::larger),
                    [
                        ::memopt::__private::Composition::new()
                            .step(<Gain as ::memopt::__private::Part>::step(&self.left, "left")),
                        ::memopt::__private::Composition::new()
                            .step(<Gain as ::memopt::__private::Part>::step(&self.right, "right")),
                    ],
                ),
        )
    }

    fn is_target(&self) -> ::core::primitive::bool {
        true
    }

    fn is_time_chunkable(&self) -> ::core::primitive::bool {
        false
    }
}

#[automatically_derived]
#[allow(deprecated)]
impl<M> ::memopt::__private::ModuleT for Block<M>
where
    Vec<M>: ::memopt::__private::Checkpointable,
    Option<M>: ::memopt::__private::Checkpointable,
    Self: ::core::clone::Clone + ::core::marker::Send + ::core::marker::Sync + 'static,
{
    fn forward_t(
        &self,
        __xs: &::memopt::__private::Tensor,
        __train: ::core::primitive::bool,
    ) -> ::memopt::__private::CandleResult<::memopt::__private::Tensor> {
        ::memopt::__private::forward_t(self, __xs, __train)
    }
}

impl<M> Block<M> {
    fn larger(&self, branches: &[Signal], _: &mut Context) -> memopt::Result<Signal> {
        match branches {
            [Signal::Dense(left), Signal::Dense(right)] => Ok(left.maximum(right)?.into()),
            other => Ok(Signal::Tuple(other.to_vec())),
        }
    }
}

/// One of two kinds of layer.
#[derive(Clone)]
enum Layer {
    Gain(Gain),
    List(Vec<Gain>),
}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::Parameters for Layer {
    fn visit_parameters(&self, __visitor: &mut ::memopt::__private::Visitor<'_>) {
        match self {
            Self::Gain(__part) => {
                <Gain as ::memopt::__private::Part>::visit(__part, __visitor);
            }
            Self::List(__part) => {
                <Vec<Gain> as ::memopt::__private::Part>::visit(__part, __visitor);
            }
        }
    }

    fn detached(&self) -> Self {
        match self {
            Self::Gain(__part) => Self::Gain(<Gain as ::memopt::__private::Part>::twin(__part)),
            Self::List(__part) => Self::List(<Vec<Gain> as ::memopt::__private::Part>::twin(__part)),
        }
    }
}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::Checkpointable for Layer
where
    for<'unchecked> Self: ::core::clone::Clone,
{
    fn forward(
        &self,
        __x: ::memopt::__private::Signal,
        __context: &mut ::memopt::__private::Context,
    ) -> ::memopt::__private::Result<::memopt::__private::Signal> {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::feed(__part, __x, __context),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::feed(__part, __x, __context),
        }
    }

    fn composition(&self) -> ::core::option::Option<::memopt::__private::Composition> {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::parts(__part),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::parts(__part),
        }
    }

    fn for_channels(
        &self,
        __channels: ::core::ops::Range<::core::primitive::usize>,
    ) -> ::memopt::__private::Result<::core::option::Option<::memopt::__private::AnyPart>> {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::slice(__part, __channels),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::slice(__part, __channels),
        }
    }

    fn channel_layer(&self) -> ::core::option::Option<&dyn ::memopt::__private::ChannelLayer> {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::layer(__part),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::layer(__part),
        }
    }

    fn window_norm(&self) -> ::core::option::Option<&dyn ::memopt::__private::WindowNorm> {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::norm(__part),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::norm(__part),
        }
    }

    fn window_neuron(&self) -> ::core::option::Option<&dyn ::memopt::__private::WindowNeuron> {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::neuron(__part),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::neuron(__part),
        }
    }

    fn footprint(
        &self,
        __x: &::memopt::__private::Incoming,
    ) -> ::core::option::Option<::memopt::__private::Footprint> {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::takes(__part, __x),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::takes(__part, __x),
        }
    }

    fn is_target(&self) -> ::core::primitive::bool {
        match self {
            Self::Gain(__part) => <Gain as ::memopt::__private::Part>::target(__part),
            Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::target(__part),
        }
    }

    fn is_a(&self, __type: ::core::any::TypeId) -> ::core::primitive::bool {
        __type == ::core::any::TypeId::of::<Self>()
            || match self {
                Self::Gain(__part) => <Gain as ::memopt::__private::Part>::kind(__part, __type),
                Self::List(__part) => <Vec<Gain> as ::memopt::__private::Part>::kind(__part, __type),
            }
    }

    fn is_time_chunkable(&self) -> ::core::primitive::bool {
        match self {
            Self::Gain(__part) => ::memopt::__private::is_time_chunkable::<Gain>(__part),
            Self::List(__part) => ::memopt::__private::is_time_chunkable::<Vec<Gain>>(__part),
        }
    }
}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::TimeChunkable for Layer where for<'unchecked> Self: ::core::clone::Clone {}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::ModuleT for Layer
where
    for<'unchecked> Self: ::core::clone::Clone,
{
    fn forward_t(
        &self,
        __xs: &::memopt::__private::Tensor,
        __train: ::core::primitive::bool,
    ) -> ::memopt::__private::CandleResult<::memopt::__private::Tensor> {
        ::memopt::__private::forward_t(self, __xs, __train)
    }
}

fn main() -> Result<()> {
    let gain = |factor: f32| -> Result<Gain> { Ok(Gain { factor: Tensor::new(&[factor], &Device::Cpu)? }) };
    let layers = vec![Layer::Gain(gain(2.)?), Layer::List(vec![gain(3.)?])];
    let (gain, left, right) = (gain(5.)?, gain(0.5)?, gain(1.)?);
    let block = Block { layers, gain, shortcut: None, left, right, name: "block" };

    let y = block.forward_t(&Tensor::new(&[1f32, -1.], &Device::Cpu)?, true)?;
    println!("{}: {:?}", block.name, y.to_vec1::<f32>()?);
    println!("{:?}", block.composition());
    Ok(())
}
