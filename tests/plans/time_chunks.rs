//! Blocks whose time chunks need no graph, or need one for some of their layers only.

use super::support::*;
use candle_core::{DType, Var};
use candle_nn::VarBuilder;
use memopt::nn::{
    AvgPool2d, BatchNorm2d, BatchNormConfig, Conv2d, Dropout, Flatten, If, Lif, Linear, LinearConfig, Plif,
    Reset, Surrogate,
};
use memopt::plan::{Keep, Plan};
use memopt::{Checkpointable, Result};

const SIDE: usize = 4;

#[derive(Clone, Checkpointable)]
enum Before {
    Pool(AvgPool2d),
    Dropout(Dropout),
    Neurons(Lif),
    Flatten(Flatten),
}

#[derive(Clone, Checkpointable)]
enum Layer {
    Conv(Conv2d),
    Linear(Linear),
}

#[derive(Clone, Checkpointable)]
enum Neuron {
    Lif(Lif),
    If(If),
    Plif(Plif),
}

#[derive(Clone, Checkpointable)]
#[spatial_split(before, layer, norm, neuron)]
struct Block {
    before: Vec<Before>,
    layer: Option<Layer>,
    norm: BatchNorm2d,
    neuron: Neuron,
}

/// Layers in front of those with weights.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Front {
    Nothing,
    Pool,
    Dropout,
    /// With states of their own.
    Neurons,
    /// For a linear layer.
    Flatten,
    /// And no layer with weights.
    NoLayer,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Lif(Reset),
    If(Reset),
    Plif,
}

#[derive(Debug, Clone, Copy)]
struct Setup {
    front: Front,
    kind: Kind,
    width: usize,
    steps: usize,
    dtype: DType,
    /// Whether the gradient of the input is wanted.
    is_tracked: bool,
    carry: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            front: Front::Nothing,
            kind: Kind::Lif(Reset::Hard(0.)),
            width: 3,
            steps: 7,
            dtype: DType::F32,
            is_tracked: true,
            carry: true,
        }
    }
}

impl Setup {
    fn block(&self, from: usize, side: usize, vb: VarBuilder) -> Result<Block> {
        let before = match self.front {
            Front::Nothing | Front::NoLayer => vec![],
            Front::Pool => vec![Before::Pool(AvgPool2d::new(2).stride(1))],
            Front::Dropout => vec![Before::Dropout(Dropout::new(0.3)?)],
            Front::Neurons => vec![Before::Neurons(Lif::default().v_threshold(0.4))],
            Front::Flatten => vec![Before::Flatten(Flatten)],
        };
        let layer = match self.front {
            Front::Flatten => Some(Layer::Linear(Linear::new(
                from * side * side,
                self.width,
                LinearConfig::default(),
                vb.pp("layer"),
            )?)),
            Front::NoLayer => None,
            _ => Some(Layer::Conv(conv(from, self.width, vb.pp("layer"))?)),
        };
        let neuron = match self.kind {
            Kind::Lif(reset) => Neuron::Lif(Lif::new(1.5)?.reset(reset).v_threshold(0.5)),
            Kind::If(reset) => Neuron::If(If::new().reset(reset).surrogate(Surrogate::atan())),
            Kind::Plif => {
                Neuron::Plif(Plif::from_builder(2., vb.pp("neuron"))?.reset(Reset::Soft).v_threshold(0.4))
            }
        };
        let norm = BatchNorm2d::new(self.width, BatchNormConfig::default(), vb.pp("norm"))?;
        Ok(Block { before, layer, norm, neuron })
    }

    fn train(&self, plan: Plan) -> Record {
        let dims = [self.steps, 2, 2, SIDE, SIDE];
        let mut data = Data::new(2, &dims, self.dtype, 5);
        if self.is_tracked {
            let leaf = Var::from_tensor(&data.windows[0]).unwrap();
            data.windows = vec![leaf.as_tensor().clone(); 3];
            data.leaf = Some(leaf);
        }
        let build = |vb: VarBuilder| {
            let first = self.block(2, SIDE, vb.pp(0))?;
            let side = if self.front == Front::Flatten { 1 } else { SIDE };
            Ok(vec![first, self.block(self.width, side, vb.pp(1))?])
        };
        train(build, plan, session(self.carry), &data).unwrap()
    }

    /// Fails unless blocks in so many chunks train to the bits of plain ones.
    #[track_caller]
    fn check(&self, chunks: &[usize]) {
        let plain = self.train(Plan::new());
        let gradients: Record =
            plain.iter().filter(|(name, _)| name.starts_with("gradient of")).cloned().collect();
        assert!(alive(&gradients) > 10, "{self:?}: {} gradients are alive", alive(&gradients));
        for &chunks in chunks {
            let keep = Keep::TimeChunks(chunks);
            let ours = self.train(Plan::new().with("0", keep).with("1", keep));
            assert_same_bits(&ours, &plain, format!("tcgc:{chunks}, {self:?}"));
        }
    }
}

#[test]
fn neurons_of_every_kind_give_the_same_bits() {
    for reset in [Reset::Soft, Reset::Hard(0.), Reset::Hard(-0.3)] {
        for kind in [Kind::Lif(reset), Kind::If(reset)] {
            Setup { kind, ..Setup::default() }.check(&[1, 2, 3, 5, 7, 9]);
        }
    }
    for carry in [false, true] {
        Setup { kind: Kind::Plif, carry, ..Setup::default() }.check(&[2, 7]);
        Setup { carry, ..Setup::default() }.check(&[2, 7]);
    }
}

/// What is in front goes by its graph, the layer behind it does not; neurons there have states at the borders too.
#[test]
fn layers_of_every_kind_in_front_give_the_same_bits() {
    for front in [Front::Pool, Front::Dropout, Front::Neurons, Front::Flatten] {
        for is_tracked in [false, true] {
            Setup { front, is_tracked, ..Setup::default() }.check(&[1, 2, 3, 7]);
        }
        Setup { front, kind: Kind::Plif, ..Setup::default() }.check(&[3]);
    }
}

#[test]
fn inputs_without_a_gradient_give_the_same_bits() {
    for carry in [false, true] {
        Setup { is_tracked: false, carry, ..Setup::default() }.check(&[2, 3, 7]);
    }
}

#[test]
fn windows_of_any_length_give_the_same_bits() {
    for steps in [1, 2, 3, 4, 10] {
        Setup { steps, ..Setup::default() }.check(&[1, 2, 3, 10]);
    }
}

#[test]
fn a_norm_without_a_layer_before_it_gives_the_same_bits() {
    for kind in [Kind::Lif(Reset::Soft), Kind::Plif] {
        Setup { front: Front::NoLayer, width: 2, kind, ..Setup::default() }.check(&[1, 2, 7]);
    }
}

/// Several blocks of channels, and channels that the layer computes in several groups.
#[test]
fn many_channels_and_other_dtypes_give_the_same_bits() {
    for front in [Front::Nothing, Front::Flatten] {
        Setup { front, width: 70, steps: 5, ..Setup::default() }.check(&[2, 5]);
    }
    for dtype in [DType::F64, DType::BF16, DType::F16] {
        for front in [Front::Nothing, Front::Pool, Front::Flatten] {
            Setup { front, dtype, steps: 4, ..Setup::default() }.check(&[2, 3]);
        }
    }
}
