//! What `#[derive(Checkpointable)]` is given: a model of plain structs.
//!
//! `checkpointable_expanded.rs` beside it is the same model with what the macro writes. A test of the macro compares the
//! two.

use candle_core::{Device, ModuleT, Result, Tensor};
use memopt::module::{Context, Signal};
use memopt::Checkpointable;

/// Multiplies by a factor: a method is the forward.
#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run", time_chunks)]
struct Gain {
    factor: Tensor,
}

impl Gain {
    fn run(&self, x: Signal, context: &mut Context) -> memopt::Result<Signal> {
        Ok(x.into_dense(context.path())?.broadcast_mul(&self.factor)?.into())
    }
}

/// Layers, whatever they are, beside a shortcut, and the larger of two gains.
#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(join(add; (layers, gain), shortcut), join(self.larger; left, right))]
struct Block<M> {
    layers: Vec<M>,
    #[checkpoint(compressor = "bit")]
    gain: Gain,
    shortcut: Option<M>,
    left: Gain,
    right: Gain,
    #[checkpoint(skip)]
    name: &'static str,
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
#[derive(Clone, Checkpointable)]
#[checkpoint(time_chunks)]
enum Layer {
    Gain(Gain),
    List(Vec<Gain>),
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
