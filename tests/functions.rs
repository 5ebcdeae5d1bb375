//! Differentiable functions (`autograd::apply`) by behaviour.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{CpuStorage, DType, Device, Result, Tensor, Var};
use common::{assert_same, bits, Values};
use memopt::autograd::{apply, backward_from, Edge, Gradient, Output};
use memopt::Error;

const CPU: &Device = &Device::Cpu;

/// `factor * x` for any number of inputs, as one function with as many outputs; counts its backward calls.
fn scaled(inputs: &[&Tensor], factor: f64) -> memopt::Result<Vec<Tensor>> {
    let outputs = inputs
        .iter()
        .map(|x| Output::copy_of(&x.detach().affine(factor, 0.)?))
        .collect::<memopt::Result<Vec<_>>>()?;
    apply("scaled", inputs.iter().map(|x| Edge::to(x)).collect(), outputs, move |gradients| {
        gradients
            .into_iter()
            .map(|g| g.map(|g| Ok(g.into_tensor().affine(factor, 0.)?.into())).transpose())
            .collect()
    })
}

fn typed(error: &candle_core::Error) -> &Error {
    Error::find(error).unwrap_or_else(|| panic!("not typed: {error}"))
}

#[test]
fn every_float_dtype_and_rank() {
    let mut values = Values::new(1);
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for shape in
            [&[][..], &[3], &[2, 3], &[1, 2, 3], &[2, 1, 2, 3], &[2, 1, 2, 1, 3], &[2, 1, 2, 1, 2, 2]]
        {
            let x = Var::from_tensor(&values.tensor(shape, dtype).unwrap()).unwrap();
            let run = |x: &Tensor, ours: bool| -> Result<(Tensor, Tensor)> {
                let y = if ours { scaled(&[x], 3.)?.remove(0) } else { x.affine(3., 0.)? };
                let loss = y.sqr()?.sum_all()?;
                Ok((loss.clone(), loss.backward()?.get(x).unwrap().clone()))
            };
            let (ours, plain) = (run(&x, true).unwrap(), run(&x, false).unwrap());
            assert_same(&ours.0, &plain.0);
            assert_same(&ours.1, &plain.1);
        }
    }
}

#[test]
fn tensors_without_elements() {
    for shape in [&[0][..], &[0, 3], &[2, 0, 4]] {
        let x = Var::zeros(shape, DType::F32, CPU).unwrap();
        let y = scaled(&[&x], 2.).unwrap().remove(0);
        assert_eq!(y.dims(), shape);
        let gradients = y.sum_all().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().dims(), shape);
    }
}

#[test]
fn all_layouts_of_an_input() {
    let base = Var::from_tensor(&Values::new(2).tensor(&[4, 5, 6], DType::F64).unwrap()).unwrap();
    let views: [fn(&Tensor) -> Result<Tensor>; 5] = [
        |x| x.transpose(0, 2),
        |x| x.narrow(1, 1, 3),
        |x| x.narrow(2, 2, 2)?.transpose(0, 1),
        |x| x.get(2),
        |x| x.narrow(0, 0, 1)?.broadcast_as((3, 5, 6)),
    ];
    for view in views {
        let run = |ours: bool| -> Result<Tensor> {
            let x = view(&base)?;
            let y = if ours { scaled(&[&x], 3.)?.remove(0) } else { x.affine(3., 0.)? };
            Ok(y.sqr()?.sum_all()?.backward()?.get(&base).unwrap().clone())
        };
        assert_same(&run(true).unwrap(), &run(false).unwrap());
    }
}

#[test]
fn an_unused_output_has_no_gradient_and_an_unused_function_does_not_run() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let outputs = || Output::copy_of(&x.as_detached_tensor()).unwrap();
    let y = apply("two", vec![Edge::to(&x)], vec![outputs(), outputs()], |gradients| {
        assert!(gradients[0].is_none() && gradients[1].is_some());
        Ok(gradients.into_iter().skip(1).collect())
    })
    .unwrap();
    let never = apply("never", vec![Edge::to(&y[0])], vec![outputs()], |_| panic!("must not run")).unwrap();
    let gradients = y[1].sum_all().unwrap().backward().unwrap();
    assert_eq!(gradients.get(&x).unwrap().to_vec1::<f32>().unwrap(), [1., 1.]);
    drop(never);
}

#[test]
fn a_function_none_of_whose_outputs_gets_a_gradient_is_skipped() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let copy = |t: &Tensor| Output::copy_of(&t.detach()).unwrap();
    let first = apply("first", vec![Edge::to(&x)], vec![copy(&x)], |_| panic!("must not run")).unwrap();
    // The second function answers `None` for its input.
    let w = Var::new(&[3f32, 4.], CPU).unwrap();
    let second = apply("second", vec![Edge::to(&first[0]), Edge::to(&w)], vec![copy(&w)], |mut g| {
        Ok(vec![None, g.remove(0)])
    })
    .unwrap();
    let gradients = second[0].sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&x).is_none(), "a variable without a gradient has none, not zeros");
    assert_eq!(gradients.get(&w).unwrap().to_vec1::<f32>().unwrap(), [1., 1.]);
}

#[test]
fn an_input_given_twice_gets_both_gradients() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    for x_in in [x.as_tensor().clone(), scaled(&[&x], 1.).unwrap().remove(0), x.affine(1., 0.).unwrap()] {
        let y = scaled(&[&x_in, &x_in], 2.).unwrap();
        let loss = (&y[0] * &y[1]).unwrap().sum_all().unwrap();
        assert_eq!(loss.backward().unwrap().get(&x).unwrap().to_vec1::<f32>().unwrap(), [8., 16.]);
    }
}

#[test]
fn one_variable_in_several_functions_and_plain_code_is_summed() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let y = scaled(&[&x], 2.).unwrap().remove(0);
    let z = scaled(&[&y, &x], 3.).unwrap();
    let loss = ((&z[0] + &z[1]).unwrap() + x.as_tensor()).unwrap().sum_all().unwrap();
    assert_eq!(loss.backward().unwrap().get(&x).unwrap().to_vec1::<f32>().unwrap(), [10., 10.]);
}

#[test]
fn untracked_inputs_get_no_edge_and_make_plain_outputs() {
    let x = Tensor::new(&[1f32, 2.], CPU).unwrap();
    let y = scaled(&[&x], 2.).unwrap().remove(0);
    assert!(!y.track_op());
    let w = Var::new(&[1f32, 2.], CPU).unwrap();
    let mask = w.gt(1.).unwrap(); // an integer is not tracked, though Candle gives it an operation
    assert!(!Edge::to(&mask).is_tracked());
    let y = scaled(&[&x, &w], 2.).unwrap();
    let gradients = (&y[0] * &y[1]).unwrap().sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&x).is_none());
    assert_eq!(gradients.get(&w).unwrap().to_vec1::<f32>().unwrap(), [4., 8.]);
}

#[test]
fn integer_outputs_are_plain() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let outputs =
        vec![Output::copy_of(&x.as_detached_tensor()).unwrap(), Output::new(CpuStorage::U32(vec![1]), 1)];
    let y = apply("with index", vec![Edge::to(&x)], outputs, |mut g| Ok(vec![g.remove(0)])).unwrap();
    assert!(y[0].track_op() && !y[1].track_op());
    y[0].sum_all().unwrap().backward().unwrap();
}

#[test]
fn many_inputs_make_a_shallow_graph() {
    // A chain of joins would overflow this stack.
    let work = || {
        let xs: Vec<Var> = (0..3_000).map(|i| Var::new(i as f32, CPU).unwrap()).collect();
        let outputs = vec![Output::new(CpuStorage::F32(vec![0.]), ())];
        let edges = xs.iter().map(|x| Edge::to(x)).collect();
        let y = apply("wide", edges, outputs, |g| {
            let g = g.into_iter().next().flatten().unwrap().into_tensor();
            Ok((0..3_000).map(|i| Some(g.affine(f64::from(i), 0.).unwrap().into())).collect())
        })
        .unwrap();
        let gradients = y[0].backward().unwrap();
        for (i, x) in xs.iter().enumerate() {
            assert_eq!(gradients.get(x).unwrap().to_scalar::<f32>().unwrap(), i as f32);
        }
    };
    std::thread::Builder::new().stack_size(192 * 1024).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_kept_output_can_be_read_and_used_again_but_not_gone_back_through() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let y = scaled(&[&x], 2.).unwrap().remove(0);
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!(y.to_vec1::<f32>().unwrap(), [2., 4.]);
    assert_eq!(y.detach().sqr().unwrap().to_vec1::<f32>().unwrap(), [4., 16.]);
    let error = y.sqr().unwrap().sum_all().unwrap().backward().unwrap_err();
    assert!(matches!(typed(&error), Error::SecondBackward { function } if function == "scaled"));
}

#[test]
fn wrong_answers_of_a_closure_are_typed_errors_and_the_next_step_works() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let run = |answer: fn(Gradient) -> Vec<Option<Gradient>>| {
        let outputs = vec![Output::copy_of(&x.as_detached_tensor()).unwrap()];
        let y =
            apply("bad", vec![Edge::to(&x)], outputs, move |mut g| Ok(answer(g.remove(0).unwrap()))).unwrap();
        let error = y[0].sum_all().unwrap().backward().unwrap_err();
        assert!(error.to_string().contains("`bad`"), "{error}");
        // nothing is poisoned
        let y = scaled(&[&x], 2.).unwrap().remove(0);
        let g = y.sum_all().unwrap().backward().unwrap();
        assert_eq!(g.get(&x).unwrap().to_vec1::<f32>().unwrap(), [2., 2.]);
        match Error::from(error) {
            Error::Candle(e) => panic!("not typed: {e}"),
            typed => typed,
        }
    };
    assert!(matches!(run(|_| vec![]), Error::GradientCount { expected: 1, got: 0, .. }));
    assert!(matches!(run(|g| vec![Some(g), None]), Error::GradientCount { expected: 1, got: 2, .. }));
    let shape = run(|g| vec![Some(g.into_tensor().narrow(0, 0, 1).unwrap().into())]);
    assert!(matches!(shape, Error::GradientShape { .. }));
    let dtype = run(|g| vec![Some(g.into_tensor().to_dtype(DType::F64).unwrap().into())]);
    assert!(matches!(dtype, Error::GradientDType { .. }));
    let length = run(|_| vec![Some(Gradient::new(CpuStorage::F32(vec![1.]), 2))]);
    assert!(matches!(length, Error::StorageLength { got: 1, .. }));
}

#[test]
fn errors_and_panics_in_a_closure_are_typed() {
    let x = Var::new(&[1f32], CPU).unwrap();
    let output = || vec![Output::new(CpuStorage::F32(vec![0.]), 1)];
    let y = apply("fails", vec![Edge::to(&x)], output(), |_| {
        Err(candle_core::Error::Msg("out of luck".into()).into())
    })
    .unwrap();
    let error = y[0].sum_all().unwrap().backward().unwrap_err();
    assert!(matches!(typed(&error), Error::Segment { segment, .. } if segment == "fails"));
    assert!(error.to_string().contains("out of luck"));

    let y = apply("panics", vec![Edge::to(&x)], output(), |_| panic!("at the {}", "disco")).unwrap();
    let loss = y[0].sum_all().unwrap();
    let error = loss.backward().unwrap_err();
    assert!(matches!(typed(&error), Error::Panicked { message, .. } if message == "at the disco"));
    assert!(matches!(typed(&loss.backward().unwrap_err()), Error::SecondBackward { .. }));
}

#[test]
fn an_output_that_does_not_fit_its_shape_is_refused() {
    let x = Var::new(&[1f32], CPU).unwrap();
    let huge = Output::new(CpuStorage::F32(vec![0.; 2]), (usize::MAX / 2 + 2, 2));
    assert!(matches!(
        apply("huge", vec![Edge::to(&x)], vec![huge], |_| Ok(vec![None])),
        Err(Error::StorageLength { .. })
    ));
    let unfit = Gradient::new(CpuStorage::F32(vec![1.]), 2).into_tensor();
    assert_eq!(unfit.dims(), [1]);
    let error = apply("short", vec![Edge::to(&x)], vec![Output::new(CpuStorage::F32(vec![0.]), 2)], |_| {
        Ok(vec![None])
    });
    assert!(matches!(error.unwrap_err(), Error::StorageLength { got: 1, .. }));
}

#[test]
fn gradients_left_by_a_failed_backward_are_not_used() {
    // The first loss puts a gradient into `a` and fails before `a` runs, or fails first: one of the two orders each.
    let second_loss = |failing_first: bool| -> Result<Vec<f32>> {
        let x = Var::new(&[1f32], CPU)?;
        let a = scaled(&[&x], 2.)?.remove(0);
        let b = scaled(&[&a], 3.)?.remove(0);
        let output = vec![Output::new(CpuStorage::F32(vec![0.]), 1)];
        let no = |_| Err(candle_core::Error::Msg("no".into()).into());
        let fails = apply("fails", vec![Edge::to(&a)], output, no)?.remove(0);
        let loss = if failing_first { (&fails + &b)? } else { (&b + &fails)? };
        loss.sum_all()?.backward().unwrap_err();
        a.sum_all()?.backward()?.get(&x).unwrap().to_vec1()
    };
    let results = [second_loss(true), second_loss(false)];
    for result in &results {
        match result {
            Ok(gradient) => assert_eq!(gradient, &[2.]),
            Err(e) => assert!(matches!(typed(e), Error::StaleGradient { function } if function == "scaled")),
        }
    }
    assert!(results.iter().any(|r| r.is_err()), "no order left a gradient behind: the test shows nothing");
}

#[test]
fn backward_from_is_the_backward_of_a_weighted_sum() {
    let mut values = Values::new(3);
    for n in 0..8 {
        let x = Var::from_tensor(&values.tensor(&[4], DType::F64).unwrap()).unwrap();
        let roots: Vec<Tensor> =
            (0..n).map(|i| x.affine(f64::from(i) + 1., 0.).unwrap().sqr().unwrap()).collect();
        let seeds: Vec<Tensor> = (0..n).map(|_| values.tensor(&[4], DType::F64).unwrap()).collect();
        let ours = backward_from(roots.iter().cloned().zip(seeds.iter().map(|g| g.clone().into())).collect())
            .unwrap();
        let mut expected = vec![0f64; 4];
        for (i, g) in seeds.iter().enumerate() {
            for ((e, g), x) in
                expected.iter_mut().zip(g.to_vec1::<f64>().unwrap()).zip(x.to_vec1::<f64>().unwrap())
            {
                *e += g * 2. * (i as f64 + 1.).powi(2) * x;
            }
        }
        match ours.get(&x) {
            None => assert_eq!(n, 0),
            Some(g) => {
                for (a, b) in g.to_vec1::<f64>().unwrap().iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-12);
                }
            }
        }
    }
}

#[test]
fn backward_from_checks_its_gradients_and_leaves_untracked_roots_out() {
    let x = Var::new(&[1f32, 2.], CPU).unwrap();
    let wrong = backward_from(vec![(x.sqr().unwrap(), Tensor::new(&[1f32], CPU).unwrap().into())]);
    assert!(matches!(wrong.unwrap_err(), Error::GradientShape { tensor, .. } if tensor == "root 0"));
    let plain = Tensor::new(&[1f32, 2.], CPU).unwrap();
    assert_eq!(backward_from(vec![(plain.clone(), plain.clone().into())]).unwrap().get_ids().count(), 0);
    // a variable as its own root
    let g = backward_from(vec![(x.as_tensor().clone(), plain.clone().into())]).unwrap();
    assert_eq!(bits(g.get(&x).unwrap()), bits(&plain));
}

#[test]
fn owned_gradients_move_and_add_like_candles() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let mut values = Values::new(5);
        let x = Var::from_tensor(&values.tensor(&[64], dtype).unwrap()).unwrap();
        let y = scaled(&[&x], 1.).unwrap().remove(0);
        let parts: Vec<Tensor> = (0..2).map(|_| values.tensor(&[64], dtype).unwrap()).collect();
        let use_of_y = |g: Tensor| {
            let output = vec![Output::copy_of(&g).unwrap()];
            apply("use", vec![Edge::to(&y)], output, move |_| {
                let storage = Gradient::from(g).into_storage()?;
                Ok(vec![Some(Gradient::new(storage, 64))])
            })
            .unwrap()
            .remove(0)
        };
        let uses: Vec<Tensor> = parts.iter().map(|g| use_of_y(g.clone())).collect();
        let loss = (&uses[0] + &uses[1]).unwrap().sum_all().unwrap();
        assert_same(loss.backward().unwrap().get(&x).unwrap(), &(&parts[0] + &parts[1]).unwrap());
    }
}
