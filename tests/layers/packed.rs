//! Layers take packed spikes, and give what they give for the tensor.

use super::common::{assert_same, bits, Values};
use super::support::{training, CPU};
use candle_core::{DType, Tensor};
use memopt::autograd::{backward_from, Gradient};
use memopt::compress::{Bit, Pack, PackedSpikes};
use memopt::module::{ChannelLayer, Checkpointable, Composition, Context, JoinOp, Signal};
use memopt::nn::{
    init, AvgPool2d, BatchNorm, BatchNormConfig, Conv1d, Conv2d, ConvConfig, Flatten, Lif, Linear, MaxPool2d,
};
use memopt::parameters::parameters;

fn packed(x: &Tensor) -> PackedSpikes {
    Bit.pack(x).unwrap().spikes().unwrap()
}

fn builder(dtype: DType) -> candle_nn::VarBuilder<'static> {
    init::seeded(&candle_nn::VarMap::new(), 1, dtype, CPU)
}

/// Bits of the output and of the gradients of the parameters.
fn forward_and_back(layer: &impl Checkpointable, x: Signal) -> Vec<Vec<u64>> {
    let y = layer.forward(x, &mut training()).unwrap().into_dense("layer").unwrap();
    let mut record = vec![y.dims().iter().map(|&dim| dim as u64).collect(), bits(&y.detach())];
    let named = parameters(layer);
    if !named.is_empty() {
        let dy = Values::new(9).tensor(y.dims(), y.dtype()).unwrap();
        let store = backward_from(vec![(y, dy.into())]).unwrap();
        record.extend(named.iter().map(|(_, parameter)| bits(store.get(parameter).unwrap())));
    }
    record
}

/// Bits of the gradient of the input.
fn back(layer: &dyn ChannelLayer, x: Signal, dy: &Tensor, context: &Context) -> Vec<u64> {
    let dy = Gradient::from(dy.copy().unwrap()).into_storage().unwrap();
    bits(&layer.back(x, dy, true, context).unwrap().unwrap().into_tensor())
}

fn check(layer: &impl Checkpointable, shape: &[usize], rate: f64, dtype: DType) {
    let x = Values::new(3).spikes(shape, rate, dtype).unwrap();
    let spikes = packed(&x);
    assert_eq!(forward_and_back(layer, (&x).into()), forward_and_back(layer, spikes.clone().into()));
    if shape[0] > 1 {
        let (x, spikes) = (x.narrow(0, 1, shape[0] - 1).unwrap(), spikes.steps(1..shape[0]).unwrap());
        assert_eq!(forward_and_back(layer, x.into()), forward_and_back(layer, spikes.into()));
    }
    if let Some(layer) = layer.channel_layer() {
        let y = layer_output(layer, shape, dtype);
        let dy = Values::new(5).tensor(&y, dtype).unwrap();
        let of_floats = back(layer, (&x).into(), &dy, &training());
        assert_eq!(of_floats, back(layer, spikes.into(), &dy, &training()));
    }
}

/// Dimensions of the output of a layer that keeps the size of images.
fn layer_output(layer: &dyn ChannelLayer, shape: &[usize], _: DType) -> Vec<usize> {
    let mut dims = shape.to_vec();
    dims[2] = layer.channels();
    dims
}

#[test]
fn convolutions() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        for (rate, steps) in [(0., 2), (0.15, 3), (0.5, 2), (1., 1), (0.2, 0)] {
            let conv = Conv2d::new(20, 33, 3, ConvConfig::default().padding(1), builder(dtype)).unwrap();
            check(&conv, &[steps, 2, 20, 5, 7], rate, dtype);
            let config = ConvConfig::default().padding(1).groups(2);
            let conv = Conv2d::new(20, 6, 3, config, builder(dtype)).unwrap();
            check(&conv, &[steps, 1, 20, 5, 65], rate, dtype);
            let conv = Conv2d::new(3, 6, 1, ConvConfig::default(), builder(dtype)).unwrap();
            check(&conv, &[steps, 2, 3, 3, 3], rate, dtype);
            let conv = Conv1d::new(5, 6, 3, ConvConfig::default().padding(1), builder(dtype)).unwrap();
            check(&conv, &[steps, 2, 5, 63], rate, dtype);
        }
    }
}

/// Layers that have no kernel for bits unpack them.
#[test]
fn other_layers() {
    let (shape, dtype) = ([3, 2, 4, 6, 6], DType::F32);
    check(&AvgPool2d::new(2), &shape, 0.3, dtype);
    check(&MaxPool2d::new(2), &shape, 0.3, dtype);
    check(&Flatten, &shape, 0.3, dtype);
    check(&Lif::default(), &shape, 0.3, dtype);
    let norm = BatchNorm::new(4, BatchNormConfig::default(), builder(dtype)).unwrap();
    check(&norm, &shape, 0.3, dtype);
    let linear = Linear::new(70, 40, Default::default(), builder(dtype)).unwrap();
    check(&linear, &[3, 2, 70], 0.3, dtype);
    let plain = candle_nn::Linear::new(Tensor::ones((3, 6), dtype, CPU).unwrap(), None);
    let x = Values::new(3).spikes(&[2, 2, 6], 0.5, dtype).unwrap();
    let run = |x: Signal| plain.forward(x, &mut training()).unwrap().into_dense("plain").unwrap();
    assert_same(&run((&x).into()), &run(packed(&x).into()));
}

/// Branches that hand their input on hand bits to the join.
#[test]
fn joins() {
    let x = Values::new(3).spikes(&[3, 2, 4, 3], 0.4, DType::F32).unwrap();
    for op in [JoinOp::Add, JoinOp::Mul, JoinOp::Iand, JoinOp::Concat] {
        let branches = || {
            [Composition::new().part("neuron", &Lif::new(1.1).unwrap().v_threshold(0.5)), Composition::new()]
        };
        let composition = Composition::new().join(op.clone(), branches());
        let run = |x: Signal| composition.run(x, &mut training()).unwrap().into_dense("join").unwrap();
        assert_same(&run((&x).into()), &run(packed(&x).into()));
    }
}

#[test]
fn what_does_not_fit_is_the_same_error() {
    let conv = Conv2d::new(2, 3, 3, ConvConfig::default(), builder(DType::F32)).unwrap();
    let error = |x: Signal| conv.forward(x, &mut training()).unwrap_err().to_string();
    for (shape, dtype) in [
        (&[2, 1, 2, 2, 2][..], DType::F32),
        (&[2, 1, 3, 4, 4], DType::F32),
        (&[2, 1, 2, 4, 4], DType::F64),
        (&[2, 4], DType::F32),
        (&[2, 1, 2, 4, 4], DType::U8),
    ] {
        let x = Values::new(3).spikes(shape, 0.5, dtype).unwrap();
        assert_eq!(error((&x).into()), error(packed(&x).into()));
    }
}

#[test]
fn signals_are_unpacked_in_place() {
    let x = Values::new(3).spikes(&[2, 3], 0.5, DType::F32).unwrap();
    let signal =
        || Signal::Tuple(vec![packed(&x).into(), (&x).into(), Signal::Tuple(vec![packed(&x).into()])]);
    let Signal::Tuple(signals) = signal().unpacked().unwrap() else { panic!("no tuple") };
    assert!(
        matches!(signals.as_slice(), [Signal::Dense(_), Signal::Dense(_), Signal::Tuple(inner)] if matches!(inner.as_slice(), [Signal::Dense(_)]))
    );
    let tensors = signal().into_tensors().unwrap();
    assert_eq!(tensors.len(), 3);
    tensors.iter().for_each(|tensor| assert_same(tensor, &x));
}
