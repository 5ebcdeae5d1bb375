//! Joins, in segments and with segments in their branches.

use super::nets::{Block, Kind};
use super::support::*;
use candle_core::DType;
use candle_nn::VarBuilder;
use memopt::module::{Context, Signal};
use memopt::nn::{Conv2d, Flatten, Lif, Linear, LinearConfig};
use memopt::plan::Plan;
use memopt::{Checkpointable, Error, Result};

/// A branch.
trait Branch: Checkpointable {
    /// Whether a join of such branches is joined time step by time step.
    const CHUNKABLE: bool;

    fn new(vb: VarBuilder) -> Result<Self>;
}

/// Its norm needs the whole window.
impl Branch for Block {
    const CHUNKABLE: bool = false;

    fn new(vb: VarBuilder) -> Result<Self> {
        Block::new(2, 2, Kind::Plif, 0, vb)
    }
}

#[derive(Clone, Checkpointable)]
#[spatial_split(proj, neuron)]
struct NoNorm {
    proj: Conv2d,
    neuron: Lif,
}

impl Branch for NoNorm {
    const CHUNKABLE: bool = true;

    fn new(vb: VarBuilder) -> Result<Self> {
        Ok(NoNorm { proj: conv(2, 2, vb.pp("proj"))?, neuron: Lif::new(2.)?.v_threshold(0.1) })
    }
}

/// Three branches, or two of them.
macro_rules! joined {
    ($name:ident, $($op:tt)+) => {
        #[derive(Clone, Checkpointable)]
        #[spatial_split(stem, join($($op)+), flatten, head)]
        struct $name<B> {
            stem: Block,
            left: B,
            deep: B,
            right: B,
            flatten: Flatten,
            head: Linear,
        }

        impl<B: Branch> $name<B> {
            fn check(channels: usize) {
                let build = |vb: VarBuilder| {
                    let branch = |name: &str| B::new(vb.pp(name));
                    let inputs = channels * 16;
                    let body = $name {
                        stem: Block::new(2, 2, Kind::Lif, 0, vb.pp("stem"))?,
                        left: branch("left")?,
                        deep: branch("deep")?,
                        right: branch("right")?,
                        flatten: Flatten,
                        head: Linear::new(inputs, 3, LinearConfig::default(), vb.pp("head"))?,
                    };
                    Ok(Around { body })
                };
                check::<B, _>(stringify!($name), build);
            }
        }
    };
}

joined!(Add, add; (left, deep), right);
joined!(Mul, mul; (left, deep), right);
joined!(And, and; left, deep, right);
joined!(Iand, iand; (left, deep), right);
joined!(Concat, concat; left, (deep, right));
joined!(Method, self.mix; left, deep, right);

impl<B: Checkpointable> Method<B> {
    /// With a parameter of the model that a layer uses too.
    fn mix(&self, branches: &[Signal], context: &mut Context) -> Result<Signal> {
        assert_eq!(branches.len(), 3);
        let [left, deep, right] = [0, 1, 2].map(|i| branches[i].clone().into_dense(context.path()));
        let scale = self.stem.proj.scale().reshape((1, 1, 2, 1, 1))?;
        Ok((left?.mul(&deep?)? + right?.broadcast_mul(&scale)?)?.into())
    }
}

/// Around the join, in its branches, and both.
fn check<B: Branch, M: Checkpointable>(name: &str, build: impl Fn(VarBuilder) -> Result<M>) {
    let trained = |plan: &Plan| {
        train(&build, plan.clone(), session(true), &Data::new(2, &[4, 2, 2, 4, 4], DType::F32, 5))
    };
    let plain = trained(&Plan::new()).unwrap();
    assert!(alive(&plain) > 25, "{name}: {}", alive(&plain));
    for plan in [
        "body: gc",
        "body.left: gc\nbody.deep: gc\nbody.right: gc",
        "body.left: tcgc:2\nbody.deep: tcgc:3\nbody.right: gc",
        "body.left.proj: gc\nbody.deep.neuron: tcgc:2\nbody.flatten..head: gc",
        "body: gc\nbody.left: gc\nbody.deep: tcgc:2\nbody.right.proj: gc\nbody.stem: tcgc:3",
    ] {
        let plan = plan.parse().unwrap();
        assert_same_bits(&trained(&plan).unwrap(), &plain, format!("{name}, under\n{plan}"));
    }
    for chunks in 2..=4 {
        let plan = format!("body: tcgc:{chunks}").parse().unwrap();
        match trained(&plan) {
            Ok(ours) => {
                assert!(B::CHUNKABLE, "{name}");
                assert_same_bits(&ours, &plain, format!("{name}, under\n{plan}"));
            }
            Err(error) => {
                let of_body =
                    matches!(error.root(), Error::NotTimeChunkable { segment, .. } if segment == "body");
                // Of a method it is not known.
                assert!(of_body && (!B::CHUNKABLE || name == "Method"), "{name}: {error}");
            }
        }
    }
}

#[test]
fn sums() {
    Add::<Block>::check(2);
    Add::<NoNorm>::check(2);
}

#[test]
fn products() {
    Mul::<Block>::check(2);
    Mul::<NoNorm>::check(2);
}

#[test]
fn products_of_three_spikes() {
    And::<Block>::check(2);
    And::<NoNorm>::check(2);
}

#[test]
fn one_fires_and_the_other_does_not() {
    Iand::<Block>::check(2);
    Iand::<NoNorm>::check(2);
}

#[test]
fn side_by_side() {
    Concat::<Block>::check(4);
    Concat::<NoNorm>::check(4);
}

#[test]
fn methods_with_three_branches() {
    Method::<Block>::check(2);
    Method::<NoNorm>::check(2);
}
