//! States, shapes, layouts and dtypes; what does not fit is an error that says what would.

use super::common::{assert_same, bits, Values};
use super::*;
use candle_core::DType;
use memopt::module::{Checkpointable, Context, Session};
use memopt::nn::Psn;
use memopt::parameters::{parameters, Parameters};
use memopt::Error;

#[test]
fn states_are_carried_by_the_session_only_where_it_is_told_to() {
    let x = Tensor::full(0.4f32, (2, 3), CPU).unwrap();
    let run = |session: &Session| {
        let context = &mut Context::evaluation(session);
        If::new()
            .forward((&x).into(), context)
            .unwrap()
            .into_dense("")
            .unwrap()
            .sum_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap()
    };
    let anew = Session::new(0);
    assert_eq!((run(&anew), run(&anew)), (0., 0.));
    let carried = Session::new(0).carry_states();
    assert_eq!((run(&carried), run(&carried)), (0., 3.));
    carried.reset_states();
    assert_eq!(run(&carried), 0.);
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Err(error @ Error::LayerInput { .. }) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn a_state_of_another_batch_is_an_error_that_says_to_reset() {
    let session = Session::new(0).carry_states();
    let run = |samples: usize| {
        let x = Tensor::zeros((2, samples), DType::F32, CPU).unwrap();
        let mut context = Context::evaluation(&session);
        context.enter("sn1", |context| Lif::default().forward(x.into(), context))
    };
    run(4).unwrap();
    let message = message(run(3));
    assert!(message.starts_with("`sn1`: ") && message.contains("reset the states"), "{message}");
    assert!(message.contains("[4]") && message.contains("[3]"), "{message}");
    session.reset_states();
    run(3).unwrap();
}

#[test]
fn half_precision_keeps_the_potential_in_f32() {
    for dtype in [DType::BF16, DType::F16] {
        let x = variable(Tensor::full(0.3f32, (3, 2), CPU).unwrap().to_dtype(dtype).unwrap());
        let (s, v) = If::new().v_threshold(5.).window(&x, None).unwrap();
        assert_eq!((s.dtype(), v.dtype()), (dtype, DType::F32));
        let once = x.to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap()[0][0];
        assert_eq!(v.to_vec1::<f32>().unwrap()[0], once + once + once);
        assert_eq!(v.sum_all().unwrap().backward().unwrap().get(&x).unwrap().dtype(), dtype);
        let wrong = Tensor::zeros(2, dtype, CPU).unwrap();
        assert!(message(If::new().window(&x, Some(&wrong))).contains("of F32"));
    }
}

#[test]
fn windows_without_elements() {
    let v0 = Tensor::new(&[0.5f32, 0.25], CPU).unwrap();
    let x = Var::zeros((0, 2), DType::F32, CPU).unwrap();
    let (s, v) = Lif::default().window(&x, Some(&v0)).unwrap();
    assert_eq!(s.dims(), [0, 2]);
    assert_same(&v, &v0);
    assert_eq!(v.sum_all().unwrap().backward().unwrap().get(&x).unwrap().dims(), [0, 2]);
    let (s, v) = Lif::default().window(&Var::zeros((3, 0, 2), DType::F32, CPU).unwrap(), None).unwrap();
    assert_eq!((s.dims(), v.dims()), (&[3, 0, 2][..], &[0, 2][..]));
}

#[test]
fn all_layouts_of_an_input() {
    let base = variable(Values::new(8).tensor(&[5, 6, 4], DType::F32).unwrap().affine(2., 0.5).unwrap());
    let views: [fn(&Tensor) -> candle_core::Result<Tensor>; 3] =
        [|x| x.transpose(0, 2), |x| x.narrow(1, 2, 3), |x| x.narrow(0, 1, 1)?.broadcast_as((3, 6, 4))];
    for view in views {
        let run = |copy: bool| {
            let x = view(&base).unwrap();
            let x = if copy { x.force_contiguous().unwrap() } else { x };
            let (s, v) = Lif::default().window(&x, None).unwrap();
            let loss = (s.sum_all().unwrap() + v.sqr().unwrap().sum_all().unwrap()).unwrap();
            loss.backward().unwrap().get(&base).unwrap().clone()
        };
        assert_same(&run(false), &run(true));
    }
}

#[test]
fn what_does_not_fit_is_a_typed_error() {
    let x = Tensor::zeros((2, 3), DType::F32, CPU).unwrap();
    for tau in [0.5, -1., f64::NAN, f64::INFINITY] {
        assert!(message(Lif::new(tau)).contains("tau is"));
        assert!(message(Plif::w_of(tau)).contains("tau is"));
    }
    assert!(message(Plif::w_of(1.)).contains("above 1"));
    assert!(message(Plif::new(Tensor::zeros(2, DType::F32, CPU).unwrap())).contains("one element"));
    assert!(message(Plif::new(Tensor::zeros((), DType::U32, CPU).unwrap())).contains("float"));
    assert!(message(If::new().v_threshold(f64::NAN).window(&x, None)).contains("finite"));
    assert!(message(If::new().surrogate(Surrogate::ATan(0.)).window(&x, None)).contains("alpha"));
    assert!(message(If::new().window(&Tensor::new(1f32, CPU).unwrap(), None)).contains("scalar"));
    assert!(message(If::new().window(&x.to_dtype(DType::U8).unwrap(), None)).contains("u8 given"));
    let psn = |rows, columns, bias| {
        let zeros = |shape: (usize, usize)| Tensor::zeros(shape, DType::F32, CPU).unwrap();
        Psn::new(zeros((rows, columns)), zeros((bias, 1)))
    };
    assert!(message(psn(2, 3, 2)).contains("[T, T]"));
    assert!(message(psn(2, 2, 3)).contains("[T, 1]"));
    assert!(message(psn(4, 4, 4).unwrap().window(&x)).contains("windows of 4 steps"));
}

#[test]
fn parallel_neurons_cannot_be_cut_in_time_and_begin_as_seeded() {
    let (w, b) = Psn::initial(4, 1, "sn1", DType::F32).unwrap();
    assert_same(&w, &Psn::initial(4, 1, "sn1", DType::F32).unwrap().0);
    assert_ne!(bits(&w), bits(&Psn::initial(4, 1, "sn2", DType::F32).unwrap().0));
    let values = w.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert!(values.iter().all(|v| v.abs() <= 0.5) && values.iter().any(|v| v.abs() > 0.25));
    assert_eq!(b.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [-1.; 4]);
    let psn = Psn::new(variable(w).as_tensor().clone(), variable(b).as_tensor().clone()).unwrap();
    assert!(!psn.is_time_chunkable() && Lif::default().is_time_chunkable());
    let names: Vec<String> = parameters(&psn).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight", "bias"]);
    assert!(parameters(&psn.detached()).is_empty());
    let empty = psn.window(&Tensor::zeros((4, 0), DType::F32, CPU).unwrap()).unwrap();
    assert_eq!(empty.dims(), [4, 0]);
}
