//! What does not fit, and what is empty.

use super::common::Values;
use super::gradients::each_layer;
use super::support::{evaluation, forward, run, training, CPU};
use candle_core::{DType, Tensor};
use memopt::module::{Checkpointable, Signal};
use memopt::nn::{
    init, AdaptiveMaxPool2d, AvgPool2d, BatchNorm, BatchNormConfig, Conv1d, Conv2d, ConvConfig, Flatten,
    LayerNorm, LayerNormConfig, Linear, LinearConfig, MaxPool2d, TimeFirst,
};
use memopt::Error;
use proptest::prelude::*;

fn builder() -> candle_nn::VarBuilder<'static> {
    init::seeded(&candle_nn::VarMap::new(), 1, DType::F32, CPU)
}

/// Fails unless the layer refuses an input of this shape with an error that names it and says `says`.
#[track_caller]
fn refuses(layer: &impl Checkpointable, shape: &[usize], dtype: DType, says: &str) {
    let x = Tensor::zeros(shape, dtype, CPU).unwrap();
    let error = training().enter("stem", |context| forward(layer, &x, context)).unwrap_err();
    assert!(matches!(&error, Error::LayerInput { part, .. } if part == "stem"), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn inputs_that_do_not_fit() {
    let f32 = DType::F32;
    let conv = Conv2d::new(4, 6, 3, ConvConfig::default(), builder().pp("a")).unwrap();
    refuses(&conv, &[2, 1, 4, 8], f32, "dimensions");
    refuses(&conv, &[2, 4], f32, "[T, N, C, ...]");
    refuses(&conv, &[2, 1, 3, 8, 8], f32, "4 channels expected, 3 given");
    refuses(&conv, &[2, 1, 4, 2, 8], f32, "too small");
    refuses(&conv, &[2, 1, 4, 8, 8], DType::F64, "to_dtype");
    let conv = Conv1d::new(4, 6, 3, ConvConfig::default(), builder().pp("b")).unwrap();
    refuses(&conv, &[2, 1, 4, 8, 8], f32, "dimensions");
    let linear = Linear::new(4, 6, LinearConfig::default(), builder().pp("c")).unwrap();
    refuses(&linear, &[2, 1, 5], f32, "4 features expected, 5 given");
    refuses(&linear, &[2, 4], f32, "[T, N, ..., in]");
    let norm = BatchNorm::new(4, BatchNormConfig::default(), builder().pp("d")).unwrap();
    refuses(&norm, &[2, 4], f32, "[T, N, 4, ...]");
    refuses(&norm, &[2, 1, 5], f32, "[T, N, 4, ...]");
    refuses(&norm, &[2, 1, 4], DType::F64, "dtype");
    refuses(&norm, &[1, 1, 4], f32, "at least two elements");
    refuses(&norm, &[0, 1, 4, 2], f32, "at least two elements");
    let norm = LayerNorm::new(&[4], LayerNormConfig::default(), builder().pp("e")).unwrap();
    refuses(&norm, &[2, 1, 5], f32, "ends with [4]");
    refuses(&norm, &[2, 4], f32, "ends with [4]");
    refuses(&AvgPool2d::new(3), &[2, 1, 4, 2, 8], f32, "smaller than the kernel");
    refuses(&AvgPool2d::new(3), &[2, 1, 4, 8], f32, "[T, N, C, H, W]");
    refuses(&AvgPool2d::new(2), &[2, 1, 4, 8, 8], DType::U32, "f32, f64, bf16 or f16");
    refuses(&MaxPool2d::new(2).padding(2), &[2, 1, 4, 8, 8], f32, "half the kernel");
    refuses(&AdaptiveMaxPool2d::new(0), &[2, 1, 4, 8, 8], f32, "1 to 1048576 pixels");
    refuses(&MaxPool2d::new(300), &[1, 1, 1, 300, 300], f32, "at most");
    refuses(&Flatten, &[2, 1], f32, "[T, N, ...]");
    refuses(&TimeFirst, &[2], f32, "[N, T, ...]");
}

#[test]
fn a_refused_window_leaves_the_running_statistics() {
    let norm = BatchNorm::new(4, BatchNormConfig::default(), builder()).unwrap();
    refuses(&norm, &[1, 1, 4], DType::F32, "at least two elements");
    assert_eq!(norm.running_var().unwrap().to_vec1::<f32>().unwrap(), [1.; 4]);
}

#[test]
fn groups_that_do_not_divide() {
    for (inputs, outputs, groups) in [(4, 6, 4), (3, 4, 2), (4, 4, 0)] {
        let error =
            Conv2d::new(inputs, outputs, 3, ConvConfig::default().groups(groups), builder()).unwrap_err();
        assert!(error.to_string().contains("groups do not divide"), "{error}");
    }
}

#[test]
fn a_kernel_of_nothing() {
    let error = Conv2d::from_tensors(
        Tensor::zeros((6, 4, 0, 3), DType::F32, CPU).unwrap(),
        None,
        ConvConfig::default(),
    );
    refuses(&error, &[2, 1, 4, 8, 8], DType::F32, "at least 1");
    let conv = Conv2d::new(4, 6, 3, ConvConfig::default().stride(0), builder()).unwrap();
    refuses(&conv, &[2, 1, 4, 8, 8], DType::F32, "at least 1");
}

#[test]
fn layers_of_no_channels() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, CPU).unwrap();
    for (inputs, outputs) in [(0, 6), (4, 0)] {
        let error = Conv2d::new(inputs, outputs, 3, ConvConfig::default(), builder().pp("a")).unwrap_err();
        assert!(error.to_string().contains("`a`: at least one channel or feature"), "{error}");
        let error = Linear::new(inputs, outputs, LinearConfig::default(), builder().pp("b")).unwrap_err();
        assert!(error.to_string().contains("`b`: at least one channel or feature"), "{error}");
        let conv = Conv2d::from_tensors(zeros(&[outputs, inputs, 3, 3]), None, ConvConfig::default());
        refuses(&conv, &[2, 1, inputs, 8, 8], DType::F32, "has no channels");
        let linear = Linear::from_tensors(zeros(&[outputs, inputs]), None);
        refuses(&linear, &[2, 1, inputs], DType::F32, "has no features");
    }
    let error = Conv2d::new(4, 6, [3, 0], ConvConfig::default(), builder()).unwrap_err();
    assert!(error.to_string().contains("a kernel of at least 1 expected, [3, 0] given"), "{error}");
}

#[test]
fn sizes_that_no_memory_holds() {
    let f32 = DType::F32;
    let conv = |config| Conv2d::new(4, 6, 3, config, builder()).unwrap();
    let shape = [2, 1, 4, 8, 8];
    let max = usize::MAX;
    refuses(&conv(ConvConfig::default().padding(max)), &shape, f32, "a padding of 18446744073709551615");
    refuses(
        &conv(ConvConfig::default().padding([1 << 30, 1 << 30])),
        &shape,
        f32,
        "[1073741824, 1073741824]",
    );
    refuses(&conv(ConvConfig::default().dilation(max)), &shape, f32, "a dilation of 18446744073709551615");
    refuses(&conv(ConvConfig::default().dilation(max / 2)), &shape, f32, "too small for a kernel of 3");
    for (inputs, outputs, kernel) in [(max, 6, 1), (4, max, 1), (4, 6, 1 << 40), (1 << 22, 1 << 22, 3)] {
        let error = Conv2d::new(inputs, outputs, kernel, ConvConfig::default(), builder()).unwrap_err();
        assert!(error.to_string().contains("not enough memory for a weight"), "{error}");
    }
    let error = Linear::new(max, 2, LinearConfig::default(), builder()).unwrap_err();
    assert!(error.to_string().contains("not enough memory for a weight"), "{error}");
}

/// Sizes that a person may mean, and others.
fn size() -> impl Strategy<Value = usize> {
    let absurd = vec![1 << 42, (1 << 42) + 1, 1 << 62, usize::MAX / 2, usize::MAX - 1, usize::MAX];
    prop_oneof![6 => 0..5usize, 1 => prop::sample::select(absurd)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A layer is run, or its error is typed and says something.
    #[test]
    fn no_configuration_panics(
        channels in [size(), size()], kernel in [size(), size()], stride in [size(), size()],
        padding in [size(), size()], dilation in [size(), size()], groups in size(),
        image in [1..5usize, 1..5usize], bias in any::<bool>(),
    ) {
        let [inputs, outputs] = channels;
        let config = ConvConfig::default().padding(padding).stride(stride).dilation(dilation);
        let conv = Conv2d::new(inputs, outputs, kernel, config.groups(groups).bias(bias), builder());
        let linear = Linear::new(inputs, outputs, LinearConfig::default().bias(bias), builder());
        let mut errors = Vec::new();
        match conv {
            Ok(conv) => {
                let x = Tensor::ones((2, 1, inputs, image[0], image[1]), DType::F32, CPU).unwrap();
                match forward(&conv, &x, &mut training()) {
                    Ok(_) => {
                        let dx = run(&conv, &x, |y| y.clone(), &mut training()).dx;
                        prop_assert_eq!(dx.dims(), x.dims());
                    }
                    Err(error) => errors.push(error),
                }
            }
            Err(error) => errors.push(error),
        }
        match linear {
            Ok(linear) => {
                let x = Tensor::ones((2, 1, inputs), DType::F32, CPU).unwrap();
                let y = forward(&linear, &x, &mut training()).unwrap();
                prop_assert_eq!(y.dims(), [2, 1, outputs]);
            }
            Err(error) => errors.push(error),
        }
        for error in errors {
            let typed = matches!(&error, Error::LayerInput { what, .. } if !what.is_empty());
            prop_assert!(typed, "{}", error);
        }
    }
}

#[test]
fn a_bias_that_does_not_fit() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, CPU).unwrap();
    let conv = Conv2d::from_tensors(zeros(&[6, 4, 3, 3]), Some(zeros(&[4])), ConvConfig::default());
    refuses(&conv, &[2, 1, 4, 8, 8], DType::F32, "a bias [6]");
    let linear = Linear::from_tensors(zeros(&[6, 4]), Some(zeros(&[4])));
    refuses(&linear, &[2, 1, 4], DType::F32, "a bias [6]");
}

#[test]
fn a_tuple_where_one_tensor_is_taken() {
    let tuple = Signal::Tuple(Vec::new());
    let error = AvgPool2d::new(2).forward(tuple, &mut training()).unwrap_err();
    assert!(matches!(error, Error::SignalKind { got: 0, .. }));
}

#[test]
fn windows_of_nothing() {
    for shape in [[0, 2, 4, 6, 6], [2, 0, 4, 6, 6]] {
        let x = Tensor::zeros(&shape, DType::F32, CPU).unwrap();
        each_layer(DType::F32, |name, run| {
            if name == "batch norm" {
                return; // refused: `inputs_that_do_not_fit`
            }
            let run = run(&x);
            assert_eq!(run.y.elem_count(), 0, "{name}");
            assert_eq!(run.dx.dims(), shape);
            for gradient in &run.parameters {
                let largest = gradient.abs().unwrap().flatten_all().unwrap().max(0).unwrap();
                assert_eq!(largest.to_scalar::<f32>().unwrap(), 0., "{name}");
            }
        });
    }
}

#[test]
fn views() {
    let x = Values::new(1).tensor(&[2, 3, 4, 5, 6], DType::F32).unwrap();
    let y = run(&Flatten, &x, |y| y.clone(), &mut training());
    assert_eq!((y.y.dims(), y.dx.dims()), (&[2, 3, 120][..], x.dims()));
    let y = forward(&TimeFirst, &x, &mut evaluation()).unwrap();
    assert_eq!(y.dims(), [3, 2, 4, 5, 6]);
    super::common::assert_same(&y.transpose(0, 1).unwrap().contiguous().unwrap(), &x);
    let y = forward(&memopt::nn::Identity, &x, &mut training()).unwrap();
    assert_eq!(y.id(), x.id());
}
