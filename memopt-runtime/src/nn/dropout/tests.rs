//! Masks: their statistics, what they depend on, and backward.

use super::*;
use crate::checkpoint::checkpoint;
use crate::module::Session;
use crate::Error;
use candle_core::{DType, Device, Var};

fn key(call: u64, path: &str, start: usize) -> RandomKey {
    RandomKey { seed: 5, call, path: path.to_owned(), start }
}

fn ones(steps: usize, n: usize) -> Tensor {
    Tensor::ones((steps, n), DType::F64, &Device::Cpu).unwrap()
}

fn run(dropout: Dropout, key: &RandomKey, x: &Tensor) -> Vec<Vec<f64>> {
    let mask = dropout.mask(key, x, "dropout").unwrap();
    masked::<f64>("dropout", x, mask).unwrap().into_dense("dropout").unwrap().to_vec2().unwrap()
}

#[test]
fn a_fraction_p_is_dropped_and_the_others_are_scaled() {
    for p in [0.1, 0.5, 0.9] {
        let y = run(Dropout::new(p).unwrap(), &key(0, "d", 0), &ones(20, 5000)).concat();
        let kept: Vec<f64> = y.iter().copied().filter(|&y| y != 0.).collect();
        assert!(kept.iter().all(|&y| y == 1. / (1. - p)));
        // Within 5 deviations of a binomial distribution.
        let (n, dropped) = (y.len() as f64, (y.len() - kept.len()) as f64);
        assert!((dropped - n * p).abs() < 5. * (n * p * (1. - p)).sqrt(), "{p}: {dropped} of {n}");
    }
}

#[test]
fn neighbours_in_space_and_time_are_independent() {
    let y = run(Dropout::new(0.5).unwrap(), &key(0, "d", 0), &ones(100, 1000));
    let equal = |pairs: Vec<(f64, f64)>| {
        let n = pairs.len() as f64;
        let equal = pairs.into_iter().filter(|(a, b)| a == b).count() as f64;
        assert!((equal - n / 2.).abs() < 5. * (n / 4.).sqrt(), "{equal} of {n}");
    };
    equal(y.iter().flat_map(|row| row.windows(2).map(|w| (w[0], w[1]))).collect());
    equal(y.windows(2).flat_map(|w| w[0].iter().copied().zip(w[1].iter().copied())).collect());
}

#[test]
fn the_mask_depends_on_seed_call_path_and_step_and_on_nothing_else() {
    let (dropout, x) = (Dropout::new(0.5).unwrap(), ones(3, 50));
    let y = run(dropout, &key(0, "a.b", 0), &x);
    assert_eq!(y, run(dropout, &key(0, "a.b", 0), &x));
    for other in
        [key(1, "a.b", 0), key(0, "a.c", 0), key(0, "a.b", 1), RandomKey { seed: 6, ..key(0, "a.b", 0) }]
    {
        assert_ne!(y, run(dropout, &other, &x));
    }
}

#[test]
fn time_chunks_are_parts_of_one_mask() {
    let x = ones(7, 9000);
    for dropout in [Dropout::new(0.4).unwrap(), Dropout::new(0.4).unwrap().one_mask_for_all_steps()] {
        let whole = run(dropout, &key(2, "d", 0), &x);
        let mut start = 0;
        for steps in [2, 1, 4] {
            let part = run(dropout, &key(2, "d", start), &x.narrow(0, start, steps).unwrap());
            assert_eq!(part, whole[start..start + steps]);
            start += steps;
        }
        let same = whole.windows(2).all(|w| w[0] == w[1]);
        assert_eq!(same, dropout.one_mask);
    }
}

#[test]
fn backward_and_a_recompute_have_the_mask_of_the_forward() {
    let dropout = Dropout::new(0.3).unwrap();
    let x = Var::from_tensor(&ones(4, 100)).unwrap();
    let context = Context::training(&Session::new(3));
    let layer = move |x: &[Tensor]| -> candle_core::Result<Tensor> {
        Ok(dropout.forward((&x[0]).into(), &mut context.clone())?.into_dense("d")?)
    };
    let plain = layer(&[x.as_tensor().clone()]).unwrap();
    let again = checkpoint(layer, &[x.as_tensor()], "d").unwrap();
    for y in [&plain, &again] {
        let y_values = y.to_vec2::<f64>().unwrap();
        assert_eq!(y_values, plain.to_vec2::<f64>().unwrap());
        let dx = y.sum_all().unwrap().backward().unwrap().get(&x).unwrap().to_vec2::<f64>().unwrap();
        assert_eq!(dx, y_values);
    }
}

#[test]
fn the_number_of_threads_does_not_change_the_mask() {
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(Dropout::new(0.5).unwrap(), &key(0, "d", 0), &ones(3, 2 * TASK + 7)))
    };
    assert_eq!(with(1), with(3));
}

#[test]
fn evaluation_is_the_identity_and_training_is_not() {
    let session = Session::new(0);
    let forward = |context: &mut Context| {
        let y = Dropout::new(0.5).unwrap().forward(ones(2, 40).into(), context).unwrap();
        y.into_dense("").unwrap().to_vec2::<f64>().unwrap()
    };
    assert_eq!(forward(&mut Context::evaluation(&session)), ones(2, 40).to_vec2::<f64>().unwrap());
    let first = forward(&mut Context::training(&session));
    assert_ne!(first, forward(&mut Context::training(&session)), "each training forward draws anew");
    let again = Session::new(0);
    assert_eq!(first, forward(&mut Context::training(&again)));
}

#[test]
fn nothing_and_all() {
    let context = &mut Context::training(&Session::new(0));
    let x = Tensor::new(&[[1f32, f32::INFINITY, f32::NAN]], &Device::Cpu).unwrap();
    let mut forward =
        |p, x: &Tensor| Dropout::new(p).unwrap().forward(x.into(), context).unwrap().into_dense("").unwrap();
    assert_eq!(forward(1., &x).to_vec2::<f32>().unwrap(), [[0.; 3]]);
    assert_eq!(forward(0., &x).to_vec2::<f32>().unwrap()[0][..2], [1., f32::INFINITY]);
    for shape in [&[0, 3][..], &[3, 0]] {
        for dropout in [0.5, 1.] {
            let x = Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
            assert_eq!(forward(dropout, &x).dims(), shape);
        }
    }
}

#[test]
fn every_float_dtype() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let x = Var::from_tensor(&ones(2, 64).to_dtype(dtype).unwrap()).unwrap();
        let context = &mut Context::training(&Session::new(0));
        let y = Dropout::new(0.5).unwrap().forward(x.as_tensor().into(), context).unwrap();
        let y = y.into_dense("").unwrap();
        assert_eq!(y.dtype(), dtype);
        let mean = y.to_dtype(DType::F64).unwrap().mean_all().unwrap().to_scalar::<f64>().unwrap();
        assert!(mean > 0.5 && mean < 1.5);
        assert_eq!(y.sum_all().unwrap().backward().unwrap().get(&x).unwrap().dtype(), dtype);
    }
}

#[test]
fn what_does_not_fit_is_a_typed_error() {
    for p in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(Dropout::new(p), Err(Error::LayerInput { .. })), "{p}");
    }
    let forward = |x: &Tensor| {
        let context = &mut Context::training(&Session::new(0));
        let layer = Dropout::new(0.5).unwrap();
        context.enter("drop", |context| layer.forward(x.into(), context)).unwrap_err().to_string()
    };
    let scalar = forward(&Tensor::new(1f32, &Device::Cpu).unwrap());
    assert!(scalar.starts_with("`drop`") && scalar.contains("scalar"), "{scalar}");
    assert!(forward(&Tensor::zeros(2, DType::U8, &Device::Cpu).unwrap()).contains("u8 given"));
}
