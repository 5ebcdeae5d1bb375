//! Checkpointed closures by behaviour.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{Conv2d, Conv2dConfig, Linear};
use common::{assert_same, bits, gradient, Values};
use memopt::checkpoint::{checkpoint, checkpoint_module, Options};
use memopt::compress::{Auto, Bit, Null, Sparse, SpikeCompressor};
use memopt::{Error, Phase};
use proptest::prelude::*;
use std::sync::Arc;

const CPU: &Device = &Device::Cpu;

fn typed(error: &candle_core::Error) -> &Error {
    Error::find(error).unwrap_or_else(|| panic!("not typed: {error}"))
}

fn var(seed: u64, shape: &[usize]) -> Var {
    Var::from_tensor(&Values::new(seed).tensor(shape, DType::F32).unwrap()).unwrap()
}

#[test]
fn several_inputs_and_outputs_with_a_compressor_each() {
    let (x, z, w) = (var(1, &[3, 3]), var(2, &[3, 3]), var(3, &[3, 3]));
    let spikes = Values::new(4).spikes(&[3, 3], 0.4, DType::F32).unwrap();
    let f = {
        let w = w.clone();
        move |x: &[Tensor]| -> Result<(Tensor, Tensor, Tensor)> {
            let a = x[0].matmul(&w)?;
            let b = (&x[1] * &x[2])?;
            Ok((a.tanh()?, (&a + &b)?, b.exp()?))
        }
    };
    let run = |(a, b, c): (Tensor, Tensor, Tensor)| {
        let loss = ((a * b).unwrap() + c.sqr().unwrap()).unwrap().sum_all().unwrap();
        let g = loss.backward().unwrap();
        (bits(&loss), [&x, &z, &w].map(|v| gradient(&g, v)))
    };
    let inputs = [x.as_tensor(), z.as_tensor(), &spikes];
    let owned: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
    let each: Vec<Arc<dyn SpikeCompressor>> = vec![Arc::new(Null), Arc::new(Sparse), Arc::new(Bit)];
    let options = Options::new("three").compressors(each);
    let ours = run(checkpoint(f.clone(), &inputs, &options).unwrap());
    assert_eq!(ours, run(f(&owned).unwrap()));

    let error = checkpoint(f, &inputs[..2], &options).unwrap_err();
    assert!(matches!(error, Error::CompressorCount { inputs: 2, compressors: 3, .. }), "{error}");
}

#[test]
fn outputs_that_alias() {
    let (x, w) = (var(1, &[4, 3]), var(2, &[4, 3]));
    type F = fn(&[Tensor], &Var) -> Result<Vec<Tensor>>;
    let aliasing: [(&str, F); 6] = [
        ("the input", |x, _| Ok(vec![x[0].clone()])),
        ("a view of it", |x, _| Ok(vec![x[0].narrow(0, 1, 2)?.t()?])),
        ("the input twice", |x, _| Ok(vec![x[0].clone(), x[0].clone()])),
        ("a captured weight", |x, w| Ok(vec![w.as_tensor().clone(), x[0].reshape((2, 6))?])),
        ("an output and a view of it", |x, w| {
            let y = (&x[0] * w.as_tensor())?;
            Ok(vec![y.clone(), y.narrow(1, 0, 2)?])
        }),
        ("a constant", |x, _| Ok(vec![Tensor::ones((2, 2), DType::F32, CPU)?, x[0].sqr()?])),
    ];
    for (what, f) in aliasing {
        for input in [x.as_tensor().clone(), x.affine(2., 0.).unwrap(), x.as_detached_tensor()] {
            let run = |y: Vec<Tensor>| {
                let mut loss = w.sqr().unwrap().sum_all().unwrap();
                for (i, y) in y.into_iter().enumerate() {
                    let y = (y.affine(i as f64 + 1., 0.5).unwrap().sqr().unwrap()).sum_all().unwrap();
                    loss = (loss + y).unwrap();
                }
                let g = loss.backward().unwrap();
                (bits(&loss), gradient(&g, &x), gradient(&g, &w))
            };
            let plain = run(f(std::slice::from_ref(&input), &w).unwrap());
            let captured = w.clone();
            let ours: Vec<Tensor> = checkpoint(move |x| f(x, &captured), &[&input], "alias").unwrap();
            assert_eq!(run(ours), plain, "{what}");
        }
    }
}

#[test]
fn an_output_is_not_changed_by_what_shares_its_buffer() {
    // The output must be a buffer of its own, not a view of the weight that the optimizer will overwrite.
    let w = var(1, &[4]);
    let captured = w.clone();
    let y: Tensor = checkpoint(move |_| Ok(captured.as_tensor().clone()), &[&var(2, &[1])], "w").unwrap();
    let before = bits(&y);
    w.set(&Tensor::zeros(4, DType::F32, CPU).unwrap()).unwrap();
    assert_eq!(bits(&y), before);
}

#[test]
fn a_closure_without_anything_tracked_is_run_and_forgotten() {
    let x = Tensor::new(&[1f32, 2.], CPU).unwrap();
    let y: Tensor = checkpoint(|x| x[0].sqr(), &[&x], "untracked").unwrap();
    assert!(!y.track_op());
    assert_eq!(y.to_vec1::<f32>().unwrap(), [1., 4.]);
    assert!(memopt::memory::held().segments.iter().all(|s| s.segment != "untracked"));
}

#[test]
fn no_inputs_at_all() {
    let w = var(1, &[3]);
    let captured = w.clone();
    let none: [&Tensor; 0] = [];
    let y: Tensor = checkpoint(move |_| captured.sqr(), &none, "weights only").unwrap();
    let g = y.sum_all().unwrap().backward().unwrap();
    assert_same(g.get(&w).unwrap(), &w.affine(2., 0.).unwrap().detach());
}

#[test]
fn a_convolutional_layer_through_its_detached_twin() {
    let (w, b) = (var(1, &[4, 2, 3, 3]), var(2, &[4]));
    let config = Conv2dConfig { padding: 1, ..Default::default() };
    let layer = Conv2d::new(w.as_tensor().clone(), Some(b.as_tensor().clone()), config);
    let x = var(3, &[2, 2, 6, 6]);
    let run = |y: Tensor| {
        let loss = y.sqr().unwrap().mean_all().unwrap();
        let g = loss.backward().unwrap();
        (bits(&loss), [&w, &b, &x].map(|v| gradient(&g, v)))
    };
    let plain = run(layer.forward(&x).unwrap().relu().unwrap());
    let ours =
        checkpoint_module(&layer, |layer, x| layer.forward(&x[0])?.relu(), &[&x], "convolution").unwrap();
    assert_eq!(run(ours), plain);
}

#[test]
fn the_detached_twin_keeps_captured_variables_too() {
    let (w, extra) = (var(1, &[3, 3]), var(2, &[2, 3]));
    let layer = Linear::new(w.as_tensor().clone(), None);
    let captured = extra.clone();
    let f = move |layer: &Linear, x: &[Tensor]| layer.forward(&x[0])? * captured.as_tensor();
    let x = var(3, &[2, 3]);
    let run = |y: Tensor| {
        let g = y.sum_all().unwrap().backward().unwrap();
        [&w, &extra, &x].map(|v| gradient(&g, v))
    };
    let plain = run(f(&layer, &[x.as_tensor().clone()]).unwrap());
    assert_eq!(run(checkpoint_module(&layer, f, &[&x], "both").unwrap()), plain);
}

#[test]
fn an_error_in_the_first_pass_names_the_segment_and_the_next_works() {
    let x = var(1, &[2, 3]);
    let bad = checkpoint(|x| x[0].matmul(&x[0]), &[&x], "features.3").unwrap_err();
    assert!(
        matches!(&bad, Error::Segment { segment, phase: Phase::Forward, .. } if segment == "features.3"),
        "{bad}"
    );
    let panicking = checkpoint(|_| -> Result<Tensor> { panic!("boom") }, &[&x], "features.4").unwrap_err();
    assert!(matches!(&panicking, Error::Panicked { function, phase: Phase::Forward, message }
        if function == "features.4" && message == "boom"));
    let y: Tensor = checkpoint(|x| x[0].sqr(), &[&x], "features.5").unwrap();
    y.sum_all().unwrap().backward().unwrap();
}

#[test]
fn an_error_or_panic_in_the_recompute_names_the_segment_and_poisons_nothing() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for panics in [false, true] {
        let x = var(1, &[2]);
        let calls = AtomicUsize::new(0);
        let y: Tensor = checkpoint(
            move |x| {
                if calls.fetch_add(1, Ordering::Relaxed) == 1 {
                    assert!(!panics, "second time");
                    candle_core::bail!("second time")
                }
                x[0].sqr()
            },
            &[&x],
            "outer.inner",
        )
        .unwrap();
        let error = y.sum_all().unwrap().backward().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("outer.inner") && text.contains("second time"), "{text}");
        match typed(&error) {
            Error::Segment { phase: Phase::Recompute, .. } => assert!(!panics),
            Error::Panicked { phase: Phase::Recompute, .. } => assert!(panics),
            other => panic!("{other}"),
        }
        let y: Tensor = checkpoint(|x| x[0].sqr(), &[&x], "next").unwrap();
        y.sum_all().unwrap().backward().unwrap();
    }
}

#[test]
fn errors_in_nested_segments_give_the_whole_path() {
    let x = var(1, &[2, 3]);
    let outer = checkpoint(
        |x| {
            let inner: Tensor = checkpoint(|x| x[0].matmul(&x[0]), &x[..1], "inner")?;
            Ok(inner)
        },
        &[&x],
        "outer",
    );
    let error = outer.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`outer`") && text.contains("`inner`"), "{text}");
    assert!(matches!(error.root(), Error::Candle(_)));
}

#[test]
fn an_operation_without_backward_is_an_error_of_its_segment() {
    let x = var(1, &[2, 3]);
    // Candle has no backward for ceil; its walk skips it, so the gradient is simply absent.
    let y: Tensor = checkpoint(|x| x[0].ceil(), &[&x], "ceil").unwrap();
    assert!(y.sum_all().unwrap().backward().unwrap().get(&x).is_none_or(|g| bits(g).iter().all(|b| *b == 0)));
    // conv-transpose1d has none either, and says so.
    let x = var(2, &[1, 2, 5]);
    let w = var(3, &[2, 2, 3]);
    let y: Tensor =
        checkpoint(move |x| x[0].conv_transpose1d(&w, 0, 0, 1, 1, 1), &[&x], "transposed").unwrap();
    let error = y.sum_all().unwrap().backward().unwrap_err();
    assert!(
        matches!(typed(&error), Error::Segment { segment, phase: Phase::Backward, .. } if segment == "transposed")
    );
}

#[test]
fn gradients_do_not_hold_the_graph_of_the_recompute() {
    let (x, w) = (var(1, &[3, 3]), var(2, &[3, 3]));
    let captured = w.clone();
    let y: Tensor = checkpoint(move |x| x[0].matmul(&captured), &[&x], "product").unwrap();
    let g = y.sum_all().unwrap().backward().unwrap();
    assert!(!g.get(&w).unwrap().track_op() && !g.get(&x).unwrap().track_op());
}

#[test]
fn variables_made_inside_the_closure_are_its_own() {
    let x = var(1, &[3]);
    let y: Tensor =
        checkpoint(|x| x[0].mul(Var::new(&[1f32, 2., 3.], x[0].device())?.as_tensor()), &[&x], "own")
            .unwrap();
    let g = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(g.get(&x).unwrap().to_vec1::<f32>().unwrap(), [1., 2., 3.]);
}

/// A nested closure gives and takes views: the recompute must see the orders in memory that the first pass saw, or
/// Candle adds up in another order.
#[test]
fn views_into_and_out_of_nested_closures() {
    type View = fn(&Tensor) -> Result<Tensor>;
    let views: [View; 5] = [
        |x| x.t(),
        |x| x.narrow(1, x.dim(1)? / 3, x.dim(1)? - x.dim(1)? / 3),
        |x| x.narrow(0, 0, 1)?.broadcast_as((33, x.dim(1)?)),
        |x| x.t()?.narrow(1, 0, 1)?.t(),
        |x| Ok(x.clone()),
    ];
    let v = var(1, &[33, 34]);
    let layer = Linear::new(var(2, &[3, 3]).as_tensor().clone(), None);
    for (i, inside) in views.into_iter().enumerate() {
        for (j, outside) in views.into_iter().enumerate() {
            let plain = move |x: &[Tensor]| {
                let y = inside(&outside(&x[0])?)?;
                y.sum(1)?.sqr()?.sum_all()? + y.mean(0)?.exp()?.sum_all()?
            };
            let nested = move |x: &[Tensor]| -> Result<Tensor> {
                let options = Options::new("inner").verify(true);
                let y: Tensor = checkpoint(move |x| inside(&x[0]), &[outside(&x[0])?], options)?;
                y.sum(1)?.sqr()?.sum_all()? + y.mean(0)?.exp()?.sum_all()?
            };
            let run = |loss: Tensor| {
                // A repetition is summed where it crosses the border of a closure: another grouping.
                let repeated = [i, j].contains(&2);
                let g = loss.backward().unwrap();
                (bits(&loss), gradient(&g, &v).filter(|_| !repeated))
            };
            let expected = run(plain(&[v.as_tensor().clone()]).unwrap());
            assert!(run(nested(&[v.as_tensor().clone()]).unwrap()) == expected, "{i} in {j}");
            let options = Options::new("outer").verify(true);
            assert!(
                run(checkpoint(nested, &[&v], &options).unwrap()) == expected,
                "{i} in {j}, checkpointed"
            );
            let twin = move |_: &Linear, x: &[Tensor]| nested(x);
            let ours = run(checkpoint_module(&layer, twin, &[&v], &options).unwrap());
            assert!(ours == expected, "{i} in {j}, checkpointed through a twin");
        }
    }
}

/// Candle's `is_contiguous` overlooks the stride of a dimension of one element, but its matrix product looks at it.
#[test]
fn single_columns_and_rows_in_any_order_in_memory() {
    for dtype in [DType::F32, DType::F16] {
        for (rows, columns) in [(1, 57), (57, 1), (1, 1), (1, 4)] {
            let mut values = Values::new(rows as u64);
            let base = Var::from_tensor(&values.tensor(&[rows, columns], dtype).unwrap()).unwrap();
            let w = Var::from_tensor(&values.tensor(&[rows, 1], dtype).unwrap()).unwrap();
            let run = |ours: bool| {
                let (x, captured) = (base.t().unwrap(), w.clone());
                let f = move |x: &[Tensor]| Ok([x[0].matmul(&captured)?, x[0].t()?]);
                let options = Options::new("column").verify(true);
                let [y, t] = if ours { checkpoint(f, &[x], options).unwrap() } else { f(&[x]).unwrap() };
                let loss = (y.tanh().unwrap().sum_all().unwrap() + t.matmul(&y).unwrap().sum_all().unwrap())
                    .unwrap();
                let g = loss.backward().unwrap();
                (bits(&loss), gradient(&g, &w), gradient(&g, &base))
            };
            assert!(run(true) == run(false), "{dtype:?} {rows} {columns}");
        }
    }
}

/// What a nested closure needs of the outer one's inputs, it takes as inputs: a captured one would lose its gradient.
#[test]
fn a_nested_closure_does_not_lose_the_gradient_of_an_outer_input_silently() {
    let (a, b) = (var(1, &[4]), var(2, &[4]));
    let captured = |x: &[Tensor]| -> Result<Tensor> {
        let outer = x[0].clone();
        Ok(checkpoint(move |x| x[0].mul(&outer), &x[1..], "inner")?)
    };
    let y = checkpoint(captured, &[&a, &b], "outer").unwrap();
    let error = y.sum_all().unwrap().backward().unwrap_err();
    let found = typed(&error);
    assert!(
        matches!(found.root(), Error::CapturedActivation { segment, .. } if segment == "inner"),
        "{error}"
    );
    let passed = |x: &[Tensor]| -> Result<Tensor> { Ok(checkpoint(|x| x[0].mul(&x[1]), x, "inner")?) };
    let y = checkpoint(passed, &[&a, &b], "outer").unwrap();
    let g = y.sum_all().unwrap().backward().unwrap();
    assert_same(g.get(&a).unwrap(), &b.as_detached_tensor());
    assert_same(g.get(&b).unwrap(), &a.as_detached_tensor());
}

#[test]
fn nested_closures_are_packed_and_counted_once() {
    let x = var(1, &[8]);
    let y: Tensor =
        checkpoint(|x| Ok(checkpoint(|x| x[0].sqr(), &x[..1], "counted.inner")?), &[&x], "counted.outer")
            .unwrap();
    let packed = |name: &str| -> u64 {
        let counts = memopt::compress::counts();
        counts.iter().find(|c| c.segment == name).map_or(0, |c| c.encodings.values().sum())
    };
    assert_eq!((packed("counted.outer"), packed("counted.inner")), (1, 0));
    y.sum_all().unwrap().backward().unwrap();
    assert_eq!((packed("counted.outer"), packed("counted.inner")), (1, 1));
}

#[test]
fn a_panicking_compressor_is_an_error_of_the_segment() {
    #[derive(Debug)]
    struct Panics;
    impl SpikeCompressor for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn encode(&self, _: &Tensor) -> memopt::Result<memopt::compress::Encoding> {
            panic!("in encode")
        }
    }
    let options = Options::new("packed").compressor(Panics);
    let error = checkpoint(|x| x[0].sqr(), &[&var(1, &[2])], options).unwrap_err();
    assert!(matches!(&error, Error::Panicked { function, message, .. }
        if function == "packed" && message == "in encode"));
}

/// A chain of views: each makes another layout of the same elements.
#[derive(Debug, Clone, Copy)]
enum View {
    Transpose(usize, usize),
    Narrow(usize, usize, usize),
    Index(usize, usize),
    Broadcast(usize),
    Unsqueeze(usize),
    Unfold(usize),
}

fn view(x: &Tensor, view: View) -> Result<Tensor> {
    let rank = x.rank();
    if rank == 0 {
        return Ok(x.clone());
    }
    match view {
        View::Transpose(i, j) => x.transpose(i % rank, j % rank),
        View::Narrow(d, start, len) => {
            let n = x.dim(d % rank)?;
            if n == 0 {
                return Ok(x.clone());
            }
            let start = start % n;
            x.narrow(d % rank, start, len % (n - start) + 1)
        }
        View::Index(d, i) if rank > 1 && x.dim(d % rank)? > 0 => {
            let n = x.dim(d % rank)?;
            x.narrow(d % rank, i % n, 1)?.squeeze(d % rank)
        }
        View::Broadcast(d) if rank < 5 => {
            let d = d % (rank + 1);
            let mut shape = x.dims().to_vec();
            shape.insert(d, 2);
            x.unsqueeze(d)?.broadcast_as(shape)
        }
        View::Unsqueeze(d) if rank < 5 => x.unsqueeze(d % (rank + 1)),
        View::Unfold(d) if rank < 5 && x.dim(d % rank)? >= 3 => x.unfold(d % rank, 2, 1),
        _ => Ok(x.clone()),
    }
}

fn views() -> impl Strategy<Value = Vec<View>> {
    let one = prop_oneof![
        (any::<usize>(), any::<usize>()).prop_map(|(i, j)| View::Transpose(i, j)),
        (any::<usize>(), any::<usize>(), any::<usize>()).prop_map(|(d, s, l)| View::Narrow(d, s, l)),
        (any::<usize>(), any::<usize>()).prop_map(|(d, i)| View::Index(d, i)),
        any::<usize>().prop_map(View::Broadcast),
        any::<usize>().prop_map(View::Unsqueeze),
        any::<usize>().prop_map(View::Unfold),
    ];
    prop::collection::vec(one, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any layout of an input gives plain Candle's bits, also through reductions, which depend on the layout.
    #[test]
    fn any_layout_of_an_input(
        shape in prop::collection::vec(0usize..5, 0..5),
        views in views(),
        tracked in any::<bool>(),
        spikes in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut values = Values::new(seed);
        let base = if spikes { values.spikes(&shape, 0.3, DType::F32) } else { values.tensor(&shape, DType::F32) };
        let base = Var::from_tensor(&base.unwrap()).unwrap();
        let w = Var::from_tensor(&values.tensor(&[1], DType::F32).unwrap()).unwrap();
        // Candle panics on views of tensors without elements, and cannot go back through `unfold`.
        let views = if base.elem_count() == 0 { vec![] } else { views };
        let views: Vec<View> = views.into_iter().filter(|v| !(tracked && matches!(v, View::Unfold(_)))).collect();
        let repeated = views.iter().any(|v| matches!(v, View::Broadcast(_)));
        let captured = w.clone();
        let f = move |x: &[Tensor]| -> Result<(Tensor, Tensor, Vec<Tensor>)> {
            let y = x[0].broadcast_mul(&captured)?;
            // `cat` looks at the strides of dimensions of one element too; the sums depend on what it gives
            let both = (0..x[0].rank()).map(|d| Tensor::cat(&[&x[0], &x[0]], d)?.sum(d)).collect::<Result<_>>()?;
            Ok((x[0].sum_all()?, y.tanh()?, both))
        };
        let flat = move |x: &[Tensor]| {
            let (s, y, both) = f(x)?;
            // and an output in the order in memory of the input
            Ok([vec![s, y, x[0].clone()], both].concat())
        };
        let run = |ours: bool| -> Result<_> {
            let mut x = if tracked { base.as_tensor().clone() } else { base.as_detached_tensor() };
            for v in &views {
                x = view(&x, *v)?;
            }
            let out = if ours {
                checkpoint(flat.clone(), &[&x], Options::new("layout").compressor(Auto).verify(true))?
            } else {
                flat(&[x])?
            };
            let mut loss = (out[0].sqr()? + out[1].sqr()?.sum_all()?)?;
            if out[2].rank() > 0 {
                loss = (loss + out[2].sum(0)?.exp()?.sum_all()?)?;
            }
            let g = loss.backward()?;
            let values: Vec<_> = out.iter().map(bits).collect();
            Ok((values, bits(&loss), gradient(&g, &base), gradient(&g, &w)))
        };
        let (plain, ours) = (run(false).unwrap(), run(true).unwrap());
        if tracked && repeated {
            // The base is used four times here, and a repetition is summed at each use: another grouping.
            prop_assert_eq!((&ours.0, &ours.1), (&plain.0, &plain.1));
        } else {
            prop_assert_eq!(&ours, &plain);
        }
    }
}
