//! Parts whose forward is a method.

use super::nets::{Block, Kind};
use super::support::*;
use candle_core::{DType, ModuleT, Tensor};
use candle_nn::{VarBuilder, VarMap};
use memopt::checkpoint::{checkpoint, checkpoint_part};
use memopt::module::{Context, Signal};
use memopt::nn::init::seeded;
use memopt::nn::{BatchNorm2d, Conv2d, Dropout, Lif};
use memopt::plan::{Keep, Plan};
use memopt::{Checkpointable, Error, Result};

/// A method is the forward, and runs several layers of a kind at one path.
#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct Opaque {
    conv: Conv2d,
    bn: BatchNorm2d,
    #[checkpoint(skip)]
    lif: Lif,
    #[checkpoint(skip)]
    dropout: Dropout,
    conv2: Conv2d,
    bn2: BatchNorm2d,
}

impl Opaque {
    fn new(vb: VarBuilder) -> Result<Self> {
        Ok(Opaque {
            conv: conv(2, 2, vb.pp("a"))?,
            bn: norm(2, vb.pp("b"))?,
            lif: Lif::new(2.)?.v_threshold(0.4),
            dropout: Dropout::new(0.4)?,
            conv2: conv(2, 2, vb.pp("c"))?,
            bn2: norm(2, vb.pp("d"))?,
        })
    }

    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let x = self.bn.forward(self.conv.forward(x, context)?, context)?;
        let x = self.dropout.forward(self.lif.forward(x, context)?, context)?;
        let x = self.bn2.forward(self.conv2.forward(x, context)?, context)?;
        self.dropout.forward(self.lif.forward(x, context)?, context)
    }
}

#[test]
fn layers_that_share_a_path_share_nothing_else() {
    let opaque = |vb: VarBuilder| Ok(Around { body: Opaque::new(vb)? });
    let data = Data::repeated(&[2, 2, 4, 4], 3);
    for carry in [false, true] {
        let plain = train(opaque, Plan::new(), session(carry), &data).unwrap();
        let ours = train(opaque, "body: gc".parse().unwrap(), session(carry), &data).unwrap();
        assert_same_bits(&ours, &plain, format!("carried {carry}"));
    }
    // What a method does with the window is not known.
    let error = train(opaque, "body: tcgc:2".parse().unwrap(), session(false), &data).unwrap_err();
    assert!(matches!(error.root(), Error::NotTimeChunkable { .. }), "{error}");
}

#[test]
fn a_model_trained_by_itself_inside_of_a_closure_is_refused() {
    let body = Opaque::new(seeded(&VarMap::new(), 3, DType::F32, CPU)).unwrap();
    let x = Tensor::ones((2, 1, 2, 4, 4), DType::F32, CPU).unwrap();
    let error = checkpoint(move |x| body.forward_t(&x[0], true), &[&x], "by hand").unwrap_err();
    assert!(matches!(error.root(), Error::TrainedInsideSegment { .. }), "{error}");
}

/// Segments placed by hand, or none.
#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct ByHand {
    first: Block,
    second: Block,
    #[checkpoint(skip)]
    keeps: Option<[Keep; 2]>,
}

impl ByHand {
    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let keeps = self.keeps.map_or([None; 2], |keeps| keeps.map(Some));
        let x = by_hand("first", &self.first, keeps[0], x, context)?;
        by_hand("second", &self.second, keeps[1], x, context)
    }
}

fn by_hand<M: Checkpointable>(
    name: &'static str,
    part: &M,
    keep: Option<Keep>,
    x: Signal,
    context: &mut Context,
) -> Result<Signal> {
    match keep {
        Some(keep) => checkpoint_part(name, part, x, context, keep),
        None => context.enter(name, |context| part.forward(x, context)),
    }
}

fn windows() -> Data {
    Data::new(2, &[4, 2, 2, 4, 4], DType::F32, 5)
}

/// A block between two parts that are methods.
fn among_others(keeps: Option<[Keep; 2]>, vb: VarBuilder) -> Result<Around<(ByHand, Block, Opaque)>> {
    let block = |name: &str| Block::new(2, 2, Kind::Lif, 0, vb.pp(name));
    let by_hand = ByHand { first: block("first")?, second: block("second")?, keeps };
    Ok(Around { body: (by_hand, block("between")?, Opaque::new(vb.pp("opaque"))?) })
}

/// Fails unless these segments placed by hand give the same bits, alone and inside of planned ones.
fn check_by_hand(all: impl IntoIterator<Item = Option<[Keep; 2]>>, carry: bool) {
    let trained = |keeps, plan: &str| {
        train(|vb| among_others(keeps, vb), plan.parse().unwrap(), session(carry), &windows()).unwrap()
    };
    let plain = trained(None, "");
    assert!(alive(&plain) > 40, "{}", alive(&plain));
    for keeps in all {
        for plan in [
            "",
            "body: gc",
            "body.0: gc\nbody.2: gc",
            "body.0..1: gc",
            "body: gc\nbody.0: gc\nbody.1: tcgc:2\nbody.2: gc",
        ] {
            let what = format!("{keeps:?} under\n{plan}, carried {carry}");
            assert_same_bits(&trained(keeps, plan), &plain, what);
        }
    }
}

const GC: Keep = Keep::Recompute;
const TIME: Keep = Keep::TimeChunks(2);
const CHANNELS: Keep = Keep::ChannelChunks(2);

#[test]
fn segments_placed_by_hand_inside_planned_segments() {
    let all = [None, Some([GC, GC]), Some([TIME, GC]), Some([GC, CHANNELS]), Some([TIME, CHANNELS])];
    check_by_hand(all, false);
    check_by_hand(all, true);
    check_by_hand([Some([CHANNELS, TIME])], false);
}

#[test]
fn carried_states_before_time_chunks_placed_by_hand_inside_planned_segments() {
    check_by_hand([Some([GC, TIME]), Some([TIME, TIME]), Some([CHANNELS, TIME])], true);
}

/// Runs its part twice, with dropout.
#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run")]
struct Twice {
    part: (Block, Dropout),
    #[checkpoint(skip)]
    keep: Option<Keep>,
}

impl Twice {
    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        let x = by_hand("part", &self.part, self.keep, x, context)?;
        by_hand("part", &self.part, self.keep, x, context)
    }
}

#[test]
fn a_part_that_runs_twice_in_segments_placed_by_hand() {
    for carry in [false, true] {
        let trained = |keep, plan: &str| {
            let build = |vb: VarBuilder| {
                let part = (Block::new(2, 2, Kind::Lif, 0, vb)?, Dropout::new(0.3)?);
                Ok(Around { body: Twice { part, keep } })
            };
            train(build, plan.parse().unwrap(), session(carry), &windows()).unwrap()
        };
        let plain = trained(None, "");
        for (keep, plan) in [
            (None, "body: gc"),
            (Some(Keep::Recompute), ""),
            (Some(Keep::TimeChunks(2)), ""),
            (Some(Keep::Recompute), "body: gc"),
        ] {
            let what = format!("{keep:?} under `{plan}`, carried {carry}");
            assert_same_bits(&trained(keep, plan), &plain, what);
        }
    }
}

/// A method that goes time step by time step, and so may be cut in time.
#[derive(Clone, Checkpointable)]
#[checkpoint(forward = "run", time_chunks)]
struct Stepwise {
    part: (Conv2d, Lif),
    #[checkpoint(skip)]
    keep: Option<Keep>,
}

impl Stepwise {
    fn run(&self, x: Signal, context: &mut Context) -> Result<Signal> {
        by_hand("part", &self.part, self.keep, x, context)
    }
}

/// Whether it is refused or exact, it is not another gradient.
#[test]
fn segments_placed_by_hand_inside_time_chunks() {
    let trained = |keep, plan: &str| {
        let build = |vb: VarBuilder| {
            let part = (conv(2, 2, vb)?, Lif::new(2.)?.v_threshold(0.2));
            Ok(Around { body: Stepwise { part, keep } })
        };
        train(build, plan.parse().unwrap(), session(false), &windows())
    };
    let plain = trained(None, "").unwrap();
    assert_same_bits(&trained(None, "body: tcgc:2").unwrap(), &plain, "nothing by hand");
    for keep in [GC, TIME] {
        match trained(Some(keep), "body: tcgc:2") {
            Ok(ours) => assert_same_bits(&ours, &plain, keep),
            Err(error) => assert!(matches!(error.root(), Error::NotTimeChunkable { .. }), "{error}"),
        }
    }
}
