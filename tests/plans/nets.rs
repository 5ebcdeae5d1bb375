//! Networks of blocks of several kinds.

use super::support::*;
use candle_core::DType;
use candle_nn::{Init, VarBuilder};
use memopt::module::Session;
use memopt::nn::{
    AvgPool2d, BatchNorm2d, Conv2d, Conv2dConfig, Dropout, Flatten, Lif, Linear, LinearConfig, Plif, Psn,
    Reset, Surrogate,
};
use memopt::plan::{Keep, Plan};
use memopt::Checkpointable;

pub const SIDE: usize = 6;

#[derive(Clone, Checkpointable)]
#[spatial_split(conv, bn)]
pub struct ConvBn {
    conv: Conv2d,
    bn: BatchNorm2d,
}

impl ConvBn {
    /// The weight of the norm.
    pub fn scale(&self) -> &candle_core::Tensor {
        self.bn.weight().unwrap()
    }
}

#[derive(Clone, Checkpointable)]
pub enum Neuron {
    Lif(Lif),
    Plif(Plif),
    Psn(Psn),
}

#[derive(Clone, Checkpointable)]
#[checkpoint(segment)]
#[spatial_split(proj, neuron)]
pub struct Block {
    pub proj: ConvBn,
    pub neuron: Neuron,
}

#[derive(Clone, Checkpointable)]
#[spatial_split(join(add; (first, second), shortcut))]
pub struct Residual {
    first: Block,
    second: Block,
    shortcut: Option<Conv2d>,
}

#[derive(Clone, Checkpointable)]
#[allow(clippy::large_enum_variant)]
pub enum Piece {
    Block(Block),
    Residual(Residual),
    Dropout(Dropout),
}

#[derive(Clone, Checkpointable)]
#[spatial_split(pieces, pool, flatten, head)]
pub struct Net {
    pieces: Vec<Piece>,
    pool: AvgPool2d,
    flatten: Flatten,
    head: Linear,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Lif,
    /// With a soft reset.
    Plif,
    Psn,
    Residual,
    ResidualProjected,
    Dropout,
}

impl Kind {
    fn is_residual(self) -> bool {
        matches!(self, Kind::Residual | Kind::ResidualProjected)
    }
}

impl Block {
    /// `steps` is the number of time steps, which the weights of [`Psn`] are for.
    pub fn new(from: usize, to: usize, kind: Kind, steps: usize, vb: VarBuilder) -> memopt::Result<Self> {
        let (inside, vb) = (vb.pp("proj"), vb.pp("neuron"));
        let proj = ConvBn { conv: conv(from, to, inside.pp("conv"))?, bn: norm(to, inside.pp("bn"))? };
        let neuron = match kind {
            Kind::Plif => {
                Neuron::Plif(Plif::from_builder(2., vb)?.reset(Reset::Soft).surrogate(Surrogate::atan()))
            }
            Kind::Psn => {
                let w = vb.get_with_hints((steps, steps), "weight", Init::Uniform { lo: -0.5, up: 1. })?;
                Neuron::Psn(Psn::new(w, vb.get_with_hints((steps, 1), "bias", Init::Const(-0.2))?)?)
            }
            _ => Neuron::Lif(Lif::new(1.333)?.decay_input(false).detach_reset(true).v_threshold(0.5)),
        };
        Ok(Block { proj, neuron })
    }
}

/// A network, and windows for it.
#[derive(Debug, Clone)]
pub struct Setup {
    pub kinds: Vec<Kind>,
    /// Channels of the blocks.
    pub width: usize,
    pub steps: usize,
    pub batch: usize,
    pub dtype: DType,
    pub seed: u64,
}

impl Default for Setup {
    /// One of each kind that can be cut in time.
    fn default() -> Self {
        let kinds = vec![Kind::Lif, Kind::Dropout, Kind::Plif, Kind::Residual, Kind::ResidualProjected];
        Setup { kinds, width: 3, steps: 5, batch: 2, dtype: DType::F32, seed: 3 }
    }
}

impl Setup {
    pub fn of(kinds: impl Into<Vec<Kind>>) -> Self {
        Setup { kinds: kinds.into(), ..Setup::default() }
    }

    /// More channels than a convolution computes together, so that channel chunks really are cut.
    pub fn wide() -> Self {
        Setup { width: 70, steps: 3, ..Setup::of([Kind::Lif, Kind::Lif]) }
    }

    pub fn build(&self, vb: VarBuilder) -> memopt::Result<Net> {
        let (mut pieces, mut channels) = (Vec::new(), 2);
        for (i, kind) in self.kinds.iter().enumerate() {
            let vb = vb.pp("pieces").pp(i);
            let block = |from, to, kind, vb| Block::new(from, to, kind, self.steps, vb);
            pieces.push(match kind {
                Kind::Dropout => Piece::Dropout(Dropout::new(0.3)?),
                Kind::Residual | Kind::ResidualProjected => {
                    let projected = *kind == Kind::ResidualProjected;
                    let to = channels + usize::from(projected);
                    let shortcut =
                        || Conv2d::new(channels, to, 1, Conv2dConfig::default(), vb.pp("shortcut"));
                    let shortcut = projected.then(shortcut).transpose()?;
                    let first = block(channels, channels, Kind::Lif, vb.pp("first"))?;
                    let second = block(channels, to, Kind::Plif, vb.pp("second"))?;
                    channels = to;
                    Piece::Residual(Residual { first, second, shortcut })
                }
                kind => {
                    let block = block(channels, self.width, *kind, vb)?;
                    channels = self.width;
                    Piece::Block(block)
                }
            });
        }
        let inputs = channels * (SIDE / 2) * (SIDE / 2);
        Ok(Net {
            pieces,
            pool: AvgPool2d::new(2),
            flatten: Flatten,
            head: Linear::new(inputs, 4, LinearConfig::default(), vb.pp("head"))?,
        })
    }

    pub fn data(&self) -> Data {
        Data::new(2, &[self.steps, self.batch, 2, SIDE, SIDE], self.dtype, self.seed)
    }

    pub fn train(&self, plan: Plan, session: Session) -> memopt::Result<Record> {
        train(|vb| self.build(vb), plan, session, &self.data())
    }

    /// Fails unless every plan trains to the bits of no plan at all, which are given back.
    #[track_caller]
    pub fn check(&self, plans: impl IntoIterator<Item = Plan>, carry: bool) -> Record {
        let plain = self.train(Plan::new(), session(carry)).unwrap();
        for plan in plans {
            let ours = self.train(plan.clone(), session(carry)).unwrap();
            assert_same_bits(&ours, &plain, format!("{:?}, carried {carry}, under\n{plan}", self.dtype));
        }
        plain
    }

    /// Paths of the blocks and their kinds.
    pub fn blocks(&self) -> Vec<(String, Kind)> {
        let of = |(i, kind): (usize, &Kind)| match kind {
            kind if kind.is_residual() => {
                vec![(format!("pieces.{i}.first"), Kind::Lif), (format!("pieces.{i}.second"), Kind::Plif)]
            }
            Kind::Dropout => vec![],
            kind => vec![(format!("pieces.{i}"), *kind)],
        };
        self.kinds.iter().enumerate().flat_map(of).collect()
    }

    /// Every block in a segment.
    pub fn plan(&self, keep: Keep) -> Plan {
        let plan = self.blocks().into_iter().fold(Plan::new(), |plan, (path, _)| plan.with(path, keep));
        let dropouts = self.kinds.iter().enumerate().filter(|(_, kind)| **kind == Kind::Dropout);
        dropouts.fold(plan, |plan, (i, _)| plan.with(format!("pieces.{i}"), keep))
    }

    /// Projection and neuron in segments of their own.
    pub fn split(&self) -> Plan {
        self.blocks().into_iter().fold(Plan::new(), |plan, (path, _)| {
            plan.with(format!("{path}.proj"), Keep::Recompute).with(format!("{path}.neuron"), Keep::Recompute)
        })
    }
}
