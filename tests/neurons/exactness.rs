//! Time chunks, single steps and a recompute give the same bits.

use super::common::{assert_same, bits, gradient, Values};
use super::*;
use candle_core::DType;
use memopt::checkpoint::checkpoint;
use memopt::module::{Checkpointable, Context, Session};
use proptest::prelude::*;

fn options() -> impl Strategy<Value = Options> {
    let reset = prop_oneof![Just(Reset::Soft), Just(Reset::Hard(0.)), Just(Reset::Hard(-0.3))];
    let flags = (any::<bool>(), any::<bool>());
    (reset, flags, 0..SURROGATES.len(), 1.1..4f64, 0.3..1.2f64).prop_map(
        |(reset, (detach_reset, decay_input), surrogate, tau, v_threshold)| Options {
            v_threshold,
            reset,
            detach_reset,
            decay_input,
            surrogate: SURROGATES[surrogate],
            tau,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn time_chunks_give_the_same_bits(
        options in options(),
        kind in 0..3usize,
        dtype in 0..4usize,
        shape in proptest::collection::vec(0..6usize, 0..3),
        many in 1..3usize,
        cuts in proptest::collection::vec(0..5usize, 1..5),
        has_state in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dtype = [DType::F32, DType::F64, DType::BF16, DType::F16][dtype];
        let state_dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        // Sometimes more than one tile of neurons.
        let state: Vec<usize> = shape.into_iter().chain([if many == 2 { 600 } else { 3 }]).collect();
        let steps: usize = cuts.iter().sum();
        let window: Vec<usize> = [steps].into_iter().chain(state.iter().copied()).collect();
        let mut values = Values::new(seed);
        let x = values.tensor(&window, DType::F64).unwrap().affine(1.5, 0.5).unwrap().to_dtype(dtype).unwrap();
        let gs = values.tensor(&window, dtype).unwrap();
        let gv = values.tensor(&state, state_dtype).unwrap();
        let (x, v0) = (variable(x), variable(values.tensor(&state, state_dtype).unwrap()));
        let w = Var::new(Plif::w_of(options.tau).unwrap(), CPU).unwrap();
        let neuron = Neuron::new(["lif", "if", "plif"][kind], options, Some(&w));

        let run = |cuts: &[usize]| {
            let mut v = has_state.then(|| v0.as_tensor().clone());
            let (mut roots, mut spikes, mut start) = (Vec::new(), Vec::new(), 0);
            for &steps in cuts {
                let part = |t: &Tensor| t.narrow(0, start, steps).unwrap();
                let (s, last) = neuron.window(&part(&x), v.as_ref()).unwrap();
                spikes.extend(bits(&s));
                roots.push((s, part(&gs).into()));
                v = Some(last);
                start += steps;
            }
            let v = v.unwrap();
            let last = bits(&v);
            roots.push((v, gv.clone().into()));
            let gradients = backward_from(roots).unwrap();
            let w = gradients.get(&w).map(|g| g.to_scalar::<f64>().unwrap());
            (spikes, last, gradient(&gradients, &x), gradient(&gradients, &v0), w)
        };
        let (whole, parts) = (run(&[steps]), run(&cuts));
        prop_assert_eq!(&whole.0, &parts.0);
        prop_assert_eq!(&whole.1, &parts.1);
        prop_assert_eq!(&whole.2, &parts.2);
        prop_assert_eq!(&whole.3, &parts.3);
        // Without the accumulator that time chunks share, their sums are merged in another grouping.
        prop_assert_eq!(whole.4.is_some(), kind == 2);
        if let (Some(a), Some(b)) = (whole.4, parts.4) {
            prop_assert!((a - b).abs() <= 1e-12 * (1. + window.iter().product::<usize>() as f64));
        }
    }
}

#[test]
fn single_steps_are_the_window() {
    let mut values = Values::new(3);
    for kind in ["lif", "if", "plif"] {
        let o = Options {
            v_threshold: 0.6,
            reset: Reset::Soft,
            detach_reset: false,
            decay_input: true,
            surrogate: SURROGATES[0],
            tau: 1.5,
        };
        let w = Var::new(Plif::w_of(1.5).unwrap() as f32, CPU).unwrap();
        let neuron = Neuron::new(kind, o, Some(&w));
        let x = variable(values.tensor(&[4, 2, 5], DType::F32).unwrap().affine(1., 0.5).unwrap());
        let (gs, gv) =
            (values.tensor(&[4, 2, 5], DType::F32).unwrap(), values.tensor(&[2, 5], DType::F32).unwrap());
        let (s, v) = neuron.window(&x, None).unwrap();
        let whole = (s.clone(), v.clone(), back(s, v, &gs, &gv));
        let (mut v, mut roots) = (None, Vec::new());
        for t in 0..4 {
            let (s, next) = neuron.step(&x.get(t).unwrap(), v.as_ref()).unwrap();
            assert_same(&s, &whole.0.get(t).unwrap());
            roots.push((s, gs.get(t).unwrap().into()));
            v = Some(next);
        }
        let v = v.unwrap();
        assert_same(&v, &whole.1);
        roots.push((v, gv.into()));
        let gradients = backward_from(roots).unwrap();
        assert_same(gradients.get(&x).unwrap(), whole.2.get(&x).unwrap());
    }
}

#[test]
fn a_recompute_gives_the_same_bits() {
    let w = Var::new(0.3f32, CPU).unwrap();
    let x = variable(Values::new(5).tensor(&[6, 3, 40], DType::F32).unwrap().affine(2., 0.4).unwrap());
    let plif = Plif::new(w.as_tensor().clone()).unwrap().v_threshold(0.5);
    let run = |recompute: bool| {
        let neuron = plif.clone();
        let f = move |x: &[Tensor]| -> candle_core::Result<Tensor> {
            let context = &mut Context::training(&Session::new(0));
            Ok(neuron.forward((&x[0]).into(), context)?.into_dense("plif")?)
        };
        let y = if recompute {
            checkpoint(f, &[x.as_tensor()], "plif").unwrap()
        } else {
            f(&[x.as_tensor().clone()]).unwrap()
        };
        let gradients = (y.sqr().unwrap() * 0.5).unwrap().sum_all().unwrap().backward().unwrap();
        (y, gradients)
    };
    let (plain, again) = (run(false), run(true));
    assert_same(&plain.0, &again.0);
    assert!(plain.0.sum_all().unwrap().to_scalar::<f32>().unwrap() > 0.);
    for variable in [&x, &w] {
        assert_same(plain.1.get(variable).unwrap(), again.1.get(variable).unwrap());
    }
}

#[test]
fn each_neuron_is_on_its_own_however_many_there_are() {
    let mut values = Values::new(17);
    let n = 3000; // more than two tiles
    let x = variable(values.tensor(&[3, n], DType::F32).unwrap().affine(1.5, 0.5).unwrap());
    let v0 = variable(values.tensor(&[n], DType::F32).unwrap());
    let (gs, gv) = (values.tensor(&[3, n], DType::F32).unwrap(), values.tensor(&[n], DType::F32).unwrap());
    let run = |from: usize, n: usize| {
        let part = |t: &Tensor| t.narrow(t.rank() - 1, from, n).unwrap().contiguous().unwrap();
        let (x, v0) = (variable(part(&x)), variable(part(&v0)));
        let (s, v) = Lif::default().window(&x, Some(&v0)).unwrap();
        let gradients = back(s.clone(), v.clone(), &part(&gs), &part(&gv));
        [s, v, gradients.get(&x).unwrap().clone(), gradients.get(&v0).unwrap().clone()]
    };
    let whole = run(0, n);
    for (from, n) in [(0, 700), (700, 1), (701, 1500), (2201, 799)] {
        for (part, whole) in run(from, n).iter().zip(&whole) {
            assert_same(part, &whole.narrow(whole.rank() - 1, from, n).unwrap());
        }
    }
}
