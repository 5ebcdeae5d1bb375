//! Parts whose forward is a method.

use super::support::*;
use candle_core::{DType, ModuleT, Tensor};
use candle_nn::{VarBuilder, VarMap};
use memopt::checkpoint::checkpoint;
use memopt::module::{Context, Signal};
use memopt::nn::init::seeded;
use memopt::nn::{BatchNorm2d, Conv2d, Dropout, Lif};
use memopt::plan::Plan;
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
