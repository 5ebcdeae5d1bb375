//! What `#[derive(Parameters)]` writes, on real tensors: paths and their order, and the detached twin.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Activation, Conv2d, Conv2dConfig, Linear, Module};
use memopt::parameters::parameters;
use memopt::prelude::*;

/// A convolution, a trained factor, and what is not trained.
#[derive(Clone, Parameters)]
struct Block<A> {
    conv: Conv2d,
    activation: A,
    gain: Gain,
    r#type: Option<Tensor>,
    constant: Tensor,
    #[checkpoint(skip)]
    scale: f64,
}

#[derive(Clone, Parameters)]
struct Gain(Tensor, #[checkpoint(skip)] usize);

#[derive(Clone, Parameters)]
enum Layer<A> {
    Block(Box<Block<A>>),
    Head(Linear),
    Flatten(Flatten),
}

#[derive(Clone, Parameters)]
struct Flatten;

#[derive(Clone, Parameters)]
struct Net<A> {
    #[checkpoint(skip)]
    name: String,
    layers: Vec<Layer<A>>,
    pair: (Gain, [Gain; 2]),
}

impl<A: Module> Block<A> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.activation.forward(&self.conv.forward(x)?)?;
        let y = y.broadcast_mul(&self.gain.0)?.broadcast_add(&self.constant)?;
        let y = match &self.r#type {
            Some(shift) => y.broadcast_add(shift)?,
            None => y,
        };
        y * self.scale
    }
}

impl<A: Module> Net<A> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layers.iter().try_fold(x.clone(), |x, layer| match layer {
            Layer::Block(block) => block.forward(&x),
            Layer::Head(head) => head.forward(&x),
            Layer::Flatten(Flatten) => x.flatten_from(1),
        })?;
        let (first, rest) = &self.pair;
        rest.iter().chain([first]).try_fold(y, |y, gain| y.broadcast_mul(&gain.0))
    }
}

/// A variable whose values depend on `seed` and position only.
fn variable(shape: &[usize], seed: f32) -> Result<Tensor> {
    let values = (0..shape.iter().product()).map(|i| (i as f32 * 0.37 + seed).sin()).collect::<Vec<_>>();
    Ok(Var::from_vec(values, shape, &Device::Cpu)?.into_inner())
}

fn gain(seed: f32) -> Result<Gain> {
    Ok(Gain(variable(&[1], seed)?, 7))
}

fn net() -> Result<Net<Activation>> {
    let config = Conv2dConfig { padding: 1, ..Default::default() };
    let block = |seed: f32, shift: Option<Tensor>| -> Result<_> {
        Ok(Layer::Block(Box::new(Block {
            conv: Conv2d::new(variable(&[2, 2, 3, 3], seed)?, Some(variable(&[2], seed + 0.1)?), config),
            activation: Activation::Relu,
            gain: gain(seed + 0.2)?,
            r#type: shift,
            constant: Tensor::ones(1, DType::F32, &Device::Cpu)?,
            scale: 0.5,
        })))
    };
    Ok(Net {
        name: "net".into(),
        layers: vec![
            block(1., Some(variable(&[1], 1.5)?))?,
            block(2., None)?,
            Layer::Flatten(Flatten),
            Layer::Head(Linear::new(variable(&[3, 32], 3.)?, Some(variable(&[3], 3.1)?))),
        ],
        pair: (gain(4.)?, [gain(5.)?, gain(6.)?]),
    })
}

fn images() -> Result<Tensor> {
    Ok(variable(&[2, 2, 4, 4], 9.)?.detach())
}

fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(tensor.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
}

/// The twin's tensor at every path of the model.
fn twin_tensors(twin: &Net<Activation>) -> Vec<&Tensor> {
    let mut tensors = Vec::new();
    for layer in &twin.layers {
        match layer {
            Layer::Block(block) => {
                tensors.push(block.conv.weight());
                tensors.extend(block.conv.bias());
                tensors.push(&block.gain.0);
                tensors.extend(&block.r#type);
            }
            Layer::Head(head) => {
                tensors.push(head.weight());
                tensors.extend(head.bias());
            }
            Layer::Flatten(Flatten) => {}
        }
    }
    tensors.extend([&twin.pair.0 .0, &twin.pair.1[0].0, &twin.pair.1[1].0]);
    tensors
}

#[test]
fn paths_are_field_names_and_indices_in_the_order_of_declaration() -> Result<()> {
    let paths: Vec<String> = parameters(&net()?).into_iter().map(|(path, _)| path).collect();
    let expected = [
        "layers.0.conv.weight",
        "layers.0.conv.bias",
        "layers.0.gain.0",
        "layers.0.type",
        "layers.1.conv.weight",
        "layers.1.conv.bias",
        "layers.1.gain.0",
        "layers.3.weight",
        "layers.3.bias",
        "pair.0.0",
        "pair.1.0.0",
        "pair.1.1.0",
    ];
    assert_eq!(paths, expected);
    Ok(())
}

#[test]
fn the_visited_tensors_are_the_models_own_variables() -> Result<()> {
    let net = net()?;
    let found = parameters(&net);
    assert!(found.iter().all(|(_, tensor)| tensor.is_variable()));
    assert_eq!(found[9].1.id(), net.pair.0 .0.id());

    let gradients = net.forward(&images()?)?.sum_all()?.backward()?;
    for (path, tensor) in &found {
        assert!(gradients.get(tensor).is_some(), "{path} has no gradient");
    }
    Ok(())
}

#[test]
fn skipped_fields_are_cloned_into_the_twin() -> Result<()> {
    let twin = net()?.detached();
    assert_eq!(twin.name, "net");
    assert_eq!(twin.pair.0 .1, 7);
    assert!(matches!(&twin.layers[0], Layer::Block(block) if block.scale == 0.5));
    Ok(())
}

#[test]
fn the_twin_is_untracked() -> Result<()> {
    let net = net()?;
    let twin = net.detached();
    assert!(parameters(&twin).is_empty());
    assert_eq!(twin_tensors(&twin).len(), parameters(&net).len());
    assert!(twin_tensors(&twin).iter().all(|tensor| !tensor.track_op()));
    Ok(())
}

#[test]
fn a_forward_through_the_twin_has_the_same_bits_and_no_graph() -> Result<()> {
    let net = net()?;
    let (ours, twins) = (net.forward(&images()?)?, net.detached().forward(&images()?)?);
    assert_eq!(bits(&ours)?, bits(&twins)?);
    assert!(ours.track_op());
    assert!(!twins.track_op());
    Ok(())
}

#[test]
fn the_twin_shares_storage_and_sees_later_updates() -> Result<()> {
    let net = net()?;
    let twin = net.detached();
    for ((path, tensor), twin) in parameters(&net).into_iter().zip(twin_tensors(&twin)) {
        let updated = tensor.affine(1., 0.25)?.detach();
        Var::from_tensor(&tensor)?.set(&updated)?;
        assert_eq!(bits(twin)?, bits(&updated)?, "{path}");
    }
    assert_eq!(bits(&net.forward(&images()?)?)?, bits(&twin.forward(&images()?)?)?);
    Ok(())
}

#[test]
fn a_twin_of_a_twin_is_a_twin() -> Result<()> {
    let twin = net()?.detached().detached();
    assert!(parameters(&twin).is_empty());
    assert_eq!(twin.layers.len(), 4);
    Ok(())
}
