//! What `#[derive(Parameters)]` writes for the model in `parameters.rs`.
//!
//! Paths are absolute, so that nothing in the user's scope can be mistaken for them. Each field's type stands in the
//! code as the user wrote it, so that the compiler points there if it is not `Parameters`.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::Linear;
use memopt::prelude::*;

/// A list of layers, whatever they are, and a classifier.
#[derive(Clone)]
struct Net<M> {
    layers: Vec<M>,
    classifier: Linear,
    steps: usize,
}

#[automatically_derived]
#[allow(deprecated)]
impl<M> ::memopt::__private::Parameters for Net<M>
where
    Vec<M>: ::memopt::__private::Parameters,
    Self: ::core::clone::Clone,
{
    fn visit_parameters(&self, __visitor: &mut ::memopt::__private::Visitor<'_>) {
        ::memopt::__private::Visitor::enter(__visitor, "layers", |__visitor| {
            <Vec<M> as ::memopt::__private::Parameters>::visit_parameters(&self.layers, __visitor);
        });
        ::memopt::__private::Visitor::enter(__visitor, "classifier", |__visitor| {
            <Linear as ::memopt::__private::Parameters>::visit_parameters(&self.classifier, __visitor);
        });
    }

    fn detached(&self) -> Self {
        Self {
            layers: <Vec<M> as ::memopt::__private::Parameters>::detached(&self.layers),
            classifier: <Linear as ::memopt::__private::Parameters>::detached(&self.classifier),
            steps: <usize as ::core::clone::Clone>::clone(&self.steps),
        }
    }
}

/// One of two kinds of layer.
#[derive(Clone)]
enum Layer {
    Dense(Linear),
    Gain(Gain),
    Steps(usize),
}

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::Parameters for Layer {
    fn visit_parameters(&self, __visitor: &mut ::memopt::__private::Visitor<'_>) {
        match self {
            Self::Dense(__part) => {
                <Linear as ::memopt::__private::Parameters>::visit_parameters(__part, __visitor);
            }
            Self::Gain(__part) => {
                <Gain as ::memopt::__private::Parameters>::visit_parameters(__part, __visitor);
            }
            Self::Steps(_) => {}
        }
    }

    fn detached(&self) -> Self {
        match self {
            Self::Dense(__part) => Self::Dense(<Linear as ::memopt::__private::Parameters>::detached(__part)),
            Self::Gain(__part) => Self::Gain(<Gain as ::memopt::__private::Parameters>::detached(__part)),
            Self::Steps(__part) => Self::Steps(<usize as ::core::clone::Clone>::clone(__part)),
        }
    }
}

/// A trained factor and its name.
#[derive(Clone)]
struct Gain(Tensor, &'static str);

#[automatically_derived]
#[allow(deprecated)]
impl ::memopt::__private::Parameters for Gain {
    fn visit_parameters(&self, __visitor: &mut ::memopt::__private::Visitor<'_>) {
        ::memopt::__private::Visitor::enter(__visitor, "0", |__visitor| {
            <Tensor as ::memopt::__private::Parameters>::visit_parameters(&self.0, __visitor);
        });
    }

    fn detached(&self) -> Self {
        Self(
            <Tensor as ::memopt::__private::Parameters>::detached(&self.0),
            <&'static str as ::core::clone::Clone>::clone(&self.1),
        )
    }
}

fn main() -> Result<()> {
    let weight = Var::zeros((2, 2), DType::F32, &Device::Cpu)?;
    let dense = Linear::new(weight.as_tensor().clone(), None);
    let gain = Gain(Var::ones(2, DType::F32, &Device::Cpu)?.into_inner(), "gain");
    let layers = vec![Layer::Dense(dense.clone()), Layer::Gain(gain), Layer::Steps(3)];
    let net = Net { layers, classifier: dense, steps: 4 };

    let twin = net.detached();
    println!("{} layers, {} steps", twin.layers.len(), twin.steps);
    for (path, tensor) in memopt::parameters::parameters(&net) {
        println!("{path} {:?}", tensor.dims());
    }
    Ok(())
}
