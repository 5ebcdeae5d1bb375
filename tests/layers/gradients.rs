//! Gradients against central differences in f64, over random layers and shapes; any layout; half precision.

use super::common::{assert_same, bits, Values};
use super::support::{evaluation, forward, run, training, variable, CPU};
use candle_core::{DType, IndexOp, Tensor};
use memopt::module::{Checkpointable, Context};
use memopt::nn::{
    init, AdaptiveAvgPool2d, AvgPool2d, BatchNorm, BatchNormConfig, Conv1d, Conv2d, ConvConfig, LayerNorm,
    LayerNormConfig, Linear, LinearConfig, MaxPool2d,
};
use memopt::parameters::parameters;
use proptest::prelude::*;

fn builder(seed: u64, dtype: DType) -> candle_nn::VarBuilder<'static> {
    init::seeded(&candle_nn::VarMap::new(), seed, dtype, CPU)
}

/// `sum(y * dy)` in f64, the function whose gradient is checked.
fn loss(layer: &impl Checkpointable, x: &Tensor, dy: &Tensor, context: &mut Context) -> f64 {
    let y = forward(&layer.detached(), x, context).unwrap();
    (y * dy).unwrap().sum_all().unwrap().to_scalar().unwrap()
}

/// Compares every gradient along a random direction with the central difference along it.
fn check(layer: &impl Checkpointable, shape: &[usize], seed: u64, context: fn() -> Context) {
    let mut values = Values::new(seed);
    let x = values.tensor(shape, DType::F64).unwrap();
    let mut seed_gradient = None;
    let run = run(
        layer,
        &x,
        |y| {
            let dy = values.tensor(y.dims(), DType::F64).unwrap();
            seed_gradient = Some(dy.clone());
            dy
        },
        &mut context(),
    );
    let dy = seed_gradient.unwrap();
    let dot = |a: &Tensor, b: &Tensor| (a * b).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap();
    let step = 1e-6;
    let agree = |what: &str, analytic: f64, plus: f64, minus: f64| {
        let numeric = (plus - minus) / (2. * step);
        let scale = 1. + analytic.abs();
        assert!((numeric - analytic).abs() < 1e-6 * scale, "{what}: {analytic} is not {numeric}");
    };
    let direction = values.tensor(shape, DType::F64).unwrap();
    let at = |factor: f64| {
        let x = (&x + direction.affine(factor, 0.).unwrap()).unwrap();
        loss(layer, &x, &dy, &mut context())
    };
    agree("input", dot(&run.dx, &direction), at(step), at(-step));
    for ((name, parameter), gradient) in parameters(layer).iter().zip(&run.parameters) {
        let direction = values.tensor(parameter.dims(), DType::F64).unwrap();
        let start = parameter.detach().copy().unwrap();
        let parameter = candle_core::Var::from_tensor(parameter).unwrap();
        let at = |factor: f64| {
            parameter.set(&(&start + direction.affine(factor, 0.).unwrap()).unwrap()).unwrap();
            loss(layer, &x, &dy, &mut context())
        };
        let (plus, minus) = (at(step), at(-step));
        parameter.set(&start).unwrap();
        agree(name, dot(gradient, &direction), plus, minus);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn of_convolutions(
        (stride, padding, dilation) in (1..4usize, 0..3usize, 1..3usize),
        (groups, inputs, outputs) in (1..3usize, 1..4usize, 1..5usize),
        (kernel, height, width) in ((1..4usize, 1..4usize), 6..9usize, 6..8usize),
        bias: bool,
        seed: u64,
    ) {
        let config = ConvConfig::default().stride(stride).padding(padding).dilation(dilation).groups(groups).bias(bias);
        let conv = Conv2d::new(groups * inputs, groups * outputs, kernel, config, builder(seed, DType::F64)).unwrap();
        check(&conv, &[2, 2, groups * inputs, height, width], seed, training);
        let config = ConvConfig::default().stride(stride).padding(padding).dilation(dilation).groups(groups).bias(bias);
        let conv = Conv1d::new(groups * inputs, groups * outputs, kernel.0, config, builder(seed, DType::F64)).unwrap();
        check(&conv, &[2, 2, groups * inputs, width], seed, training);
    }

    #[test]
    fn of_linear(rows in prop::collection::vec(1..4usize, 1..3), inputs in 1..6usize, outputs in 1..70usize, bias: bool, seed: u64) {
        let layer = Linear::new(inputs, outputs, LinearConfig::default().bias(bias), builder(seed, DType::F64)).unwrap();
        let shape = [vec![2], rows, vec![inputs]].concat();
        check(&layer, &shape, seed, training);
    }

    #[test]
    fn of_norms(channels in 1..20usize, rest in prop::collection::vec(1..4usize, 0..3), affine: bool, seed: u64) {
        let config = BatchNormConfig::default().affine(affine);
        let norm = BatchNorm::new(channels, config, builder(seed, DType::F64)).unwrap();
        let shape = [vec![3, 2, channels], rest].concat();
        check(&norm, &shape, seed, training);
        check(&norm, &shape, seed, evaluation);
        let size = channels + 1;
        let config = LayerNormConfig::default().affine(affine);
        let norm = LayerNorm::new(&[2, size], config, builder(seed, DType::F64)).unwrap();
        check(&norm, &[2, 3, 2, size], seed, training);
    }

    #[test]
    fn of_pools((height, width) in (4..9usize, 4..9usize), kernel in (1..4usize, 1..4usize), stride in 1..4usize, seed: u64) {
        let shape = [2, 1, 2, height, width];
        check(&AvgPool2d::new(kernel).stride(stride), &shape, seed, training);
        check(&MaxPool2d::new(kernel).stride(stride).padding([kernel.0 / 2, kernel.1 / 2]), &shape, seed, training);
        check(&AdaptiveAvgPool2d::new(kernel), &shape, seed, training);
    }
}

/// Some of every kind of layer for inputs `[T, N, 4, 6, 6]`, by name.
pub fn each_layer(dtype: DType, mut f: impl FnMut(&str, &dyn Fn(&Tensor) -> super::support::Run)) {
    let vb = builder(3, dtype);
    let dy = |y: &Tensor| Values::new(9).tensor(y.dims(), y.dtype()).unwrap();
    let conv = Conv2d::new(4, 6, 3, ConvConfig::default().padding(1), vb.pp("a")).unwrap();
    f("conv", &|x| run(&conv, x, dy, &mut training()));
    let conv = Conv2d::new(4, 2, 3, ConvConfig::default().groups(2).stride(2), vb.pp("b")).unwrap();
    f("strided conv", &|x| run(&conv, x, dy, &mut training()));
    let linear = Linear::new(6, 5, LinearConfig::default(), vb.pp("c")).unwrap();
    f("linear", &|x| run(&linear, x, dy, &mut training()));
    let norm = BatchNorm::new(4, BatchNormConfig::default(), vb.pp("d")).unwrap();
    f("batch norm", &|x| run(&norm, x, dy, &mut training()));
    let running = BatchNorm::new(4, BatchNormConfig::default(), vb.pp("e")).unwrap();
    f("batch norm in evaluation", &|x| run(&running, x, dy, &mut evaluation()));
    let layer_norm = LayerNorm::new(&[6, 6], LayerNormConfig::default(), vb.pp("f")).unwrap();
    f("layer norm", &|x| run(&layer_norm, x, dy, &mut training()));
    f("average", &|x| run(&AvgPool2d::new(2), x, dy, &mut training()));
    f("maximum", &|x| run(&MaxPool2d::new(3).stride(2).padding(1), x, dy, &mut training()));
    f("adaptive", &|x| run(&AdaptiveAvgPool2d::new(4), x, dy, &mut training()));
}

#[test]
fn all_layouts_of_an_input() {
    let base = Values::new(1).tensor(&[8, 7, 4, 3, 3], DType::F32).unwrap();
    let views = [
        base.permute((4, 3, 2, 0, 1)).unwrap().narrow(3, 1, 6).unwrap().narrow(4, 1, 6).unwrap(),
        base.i((0..1, 0..1, .., 0..1, ..))
            .unwrap()
            .broadcast_as((6, 2, 4, 6, 3))
            .unwrap()
            .transpose(0, 4)
            .unwrap(),
    ];
    each_layer(DType::F32, |name, run| {
        for view in &views {
            assert!(!view.is_contiguous());
            let (a, b) = (run(view), run(&view.contiguous().unwrap()));
            assert_same(&a.y, &b.y);
            assert_same(&a.dx, &b.dx);
            assert!(a.parameters.iter().zip(&b.parameters).all(|(a, b)| bits(a) == bits(b)), "{name}");
        }
    });
}

#[test]
fn a_tracked_view_is_gone_back_through() {
    let x = variable(&Values::new(1).tensor(&[2, 3, 6, 6, 4], DType::F64).unwrap());
    let conv = Conv2d::new(4, 6, 3, ConvConfig::default(), builder(0, DType::F64)).unwrap();
    let y = forward(&conv, &x.permute((0, 1, 4, 2, 3)).unwrap(), &mut training()).unwrap();
    let through_view = y.sum_all().unwrap().backward().unwrap().get(&x).unwrap().clone();
    let run = run(&conv, &x.permute((0, 1, 4, 2, 3)).unwrap(), |y| y.ones_like().unwrap(), &mut training());
    assert_same(&through_view.permute((0, 1, 4, 2, 3)).unwrap().contiguous().unwrap(), &run.dx);
}

/// bf16 and f16 are the f32 computation of the same values, rounded once at the end.
#[test]
fn half_precision_is_rounded_f32() {
    for dtype in [DType::BF16, DType::F16] {
        let x = Values::new(4).tensor(&[2, 2, 4, 6, 6], dtype).unwrap();
        let wide = |t: &Tensor| t.to_dtype(DType::F32).unwrap();
        let vb = builder(3, dtype);
        let conv = Conv2d::new(4, 6, 3, ConvConfig::default().padding(1), vb.pp("a")).unwrap();
        let bias = conv.bias().map(|bias| variable(&wide(bias)));
        let exact = Conv2d::from_tensors(variable(&wide(conv.weight())), bias, *conv.config());
        let dy = |y: &Tensor| Values::new(9).tensor(y.dims(), dtype).unwrap();
        let got = run(&conv, &x, dy, &mut training());
        let expected = run(&exact, &wide(&x), |y| wide(&dy(y)), &mut training());
        let rounded = |t: &Tensor| t.to_dtype(dtype).unwrap();
        assert_same(&got.y, &rounded(&expected.y));
        assert_same(&got.dx, &rounded(&expected.dx));
        got.parameters.iter().zip(&expected.parameters).for_each(|(a, b)| assert_same(a, &rounded(b)));
    }
}

#[test]
fn every_layer_takes_every_dtype() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let x = Values::new(4).tensor(&[2, 2, 4, 6, 6], dtype).unwrap();
        each_layer(dtype, |name, run| {
            let run = run(&x);
            let all = [&run.y, &run.dx].into_iter().chain(&run.parameters);
            all.for_each(|t| assert_eq!(t.dtype(), dtype, "{name}"));
            assert_eq!(run.dx.dims(), x.dims());
        });
    }
}

#[test]
fn the_gradient_of_an_untracked_input_is_not_formed() {
    let conv = Conv2d::new(4, 6, 3, ConvConfig::default(), builder(0, DType::F32)).unwrap();
    let x = Values::new(1).tensor(&[2, 3, 4, 6, 6], DType::F32).unwrap();
    let store = forward(&conv, &x, &mut training()).unwrap().sum_all().unwrap().backward().unwrap();
    assert!(store.get(&x).is_none());
    let expected = run(&conv, &x, |y| y.ones_like().unwrap(), &mut training());
    assert_same(store.get(conv.weight()).unwrap(), &expected.parameters[0]);
    // a frozen weight, and a twin
    let frozen = Conv2d::from_tensors(conv.weight().detach(), None, *conv.config());
    let x = variable(&x);
    let store = forward(&frozen, &x, &mut training()).unwrap().sum_all().unwrap().backward().unwrap();
    assert_same(store.get(&x).unwrap(), &expected.dx);
    use memopt::Parameters;
    let y = forward(&conv.detached(), &x.detach(), &mut training()).unwrap();
    assert!(!y.track_op());
    assert_same(&y, &expected.y);
}
