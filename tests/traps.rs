//! The traps that have bitten people elsewhere. Here are those that concern checkpointed closures and compression; all
//! that concern checkpointing, models and neurons, and where their tests are:
//!
//! | trap | tests |
//! |---|---|
//! | weights captured by a checkpointed closure get no gradient | `traps.rs::weights_captured_by_a_closure_get_their_gradients` |
//! | the first segment's input needs no gradient, so its weights get none | `traps.rs::a_first_input_that_needs_no_gradient_does_not_cost_the_weights_theirs` |
//! | | `plans/kinds.rs::plans_of_every_kind_give_the_same_bits` |
//! | running statistics move twice, or not without a backward | `plans/running.rs::they_move_once_a_forward_whether_or_not_a_backward_follows` |
//! | | `layers/running.rs::they_move_in_training_without_a_backward_and_not_in_evaluation` |
//! | another dropout mask at recompute | `plans/kinds.rs::plans_of_every_kind_give_the_same_bits` |
//! | | `../memopt-runtime/src/nn/dropout/tests.rs::backward_and_a_recompute_have_the_mask_of_the_forward` |
//! | one weight in two segments | `traps.rs::one_weight_in_two_segments_is_summed_once` |
//! | | `plans/shared.rs::its_gradients_are_summed_once` |
//! | the same segment called twice in a forward | `traps.rs::the_same_segment_called_twice_in_a_forward_keeps_two_records` |
//! | | `plans/opaque.rs::a_part_that_runs_twice_in_segments_placed_by_hand` |
//! | a second backward through a freed graph | `traps.rs::a_second_backward_is_a_clear_error` |
//! | | `plans/failures.rs::a_second_backward_is_refused_and_the_next_step_is_as_if_nothing_had_been` |
//! | forward without backward, in a loop | `memory.rs::forward_without_backward_in_a_loop_is_flat` |
//! | | `memory.rs::planned_forward_without_backward_in_a_loop_is_flat` |
//! | non-binary values in a bit-compressed input | `traps.rs::non_binary_values_in_a_bit_compressed_input_are_kept_exactly_and_counted` |
//! | | `plans/inputs.rs::what_is_declared_to_be_spikes_and_is_not_is_kept_exactly_and_counted` |
//! | T not divisible by k, k above T, T of 1 and of 0 | `plans/window.rs::chunks_need_not_divide_the_window_nor_be_fewer_than_its_steps` |
//! | | `plans/window.rs::a_window_of_no_steps_is_refused_under_every_plan` |
//! | | `neurons/fitting.rs::windows_without_elements` |
//! | batch norm over time chunks | `plans/norms.rs::neurons_before_norms_and_several_norms_in_chunks` |
//! | | `layers/chunks.rs::batch_norm_by_its_pieces` |
//! | a neuron's state is not reset between batches, or a graph is kept through it | `neurons/fitting.rs::states_are_carried_by_the_session_only_where_it_is_told_to` |
//! | | `plans/states.rs::states_of_another_batch_are_refused_until_they_are_reset` |
//! | | `plans/states.rs::a_call_can_be_gone_back_through_after_the_next` |
//! | an evaluation between steps disturbs them | `plans/evaluation.rs::evaluation_between_steps_disturbs_nothing` |
//! | | `plans/evaluation.rs::evaluation_does_not_move_carried_states` |
//! | a recompute differs | `traps.rs::a_recompute_that_differs_names_the_segment` |
//! | | `plans/failures.rs::a_backward_that_fails_in_a_segment_names_it_and_the_next_step_is_as_if_nothing_had_been` |
//! | a panic or an error inside a segment | `closures.rs::an_error_or_panic_in_the_recompute_names_the_segment_and_poisons_nothing` |
//! | | `plans/failures.rs::a_forward_that_fails_in_a_segment_names_it_and_the_next_step_works` |
//! | | `plans/failures.rs::a_forward_that_fails_moves_nothing` |
//! | memory falls only if the last segment goes first | `memory.rs::the_curve_of_a_backward_falls` |
//! | | `memory.rs::saved_state_is_freed_before_the_previous_backward` |
//! | a high-water mark depends on timing, or counts what is not said | `memory.rs::what_is_held_is_what_is_counted` |
//! | | `vgg_memory.rs::a_vgg_in_segments_holds_a_twentieth_after_forward_and_stays_below_its_peak` |
//! | deep graphs overflow the stack | `deep.rs::a_thousand_chained_closures_on_a_two_mebibyte_stack` |
//! | | `deep.rs::a_thousand_planned_segments_on_a_two_mebibyte_stack` |
//! | | `deep.rs::a_longer_chain_is_a_typed_error` |
//! | a segment captures a tracked activation | `traps.rs::a_captured_activation_is_a_typed_error_that_says_to_pass_it` |
//! | | `plans/refused.rs::a_weight_that_is_computed_from_variables_is_refused` |
//! | weights change between forward and backward | `traps.rs::weights_that_change_between_forward_and_backward_are_found` |
//! | | `plans/failures.rs::weights_that_change_between_forward_and_backward_are_found` |
//! | one ulp flips a spike | `traps.rs::spikes_are_compared_by_bits_not_by_tolerance` |
//! | mean of means with unequal micro-batches | `train/splits.rs::unequal_micro_batches_are_weighted_by_their_counts` |
//! | | `train/splits.rs::any_split_has_the_gradient_of_the_large_batch` |
//! | the last partial accumulation window | `train/splits.rs::the_last_partial_window_is_weighted_and_stepped` |
//! | | `../memopt-runtime/src/train/accumulator/tests.rs::at_the_end_all_finish_whether_or_not_they_have_micro_batches_left` |
//! | gradients cross the wire at each micro-batch, or never | `../memopt-runtime/src/train/accumulator/tests.rs::a_group_steps_as_one_process_with_all_micro_batches` |
//! | unscale twice, clip before unscale | `train/scaling.rs::the_scale_changes_no_bit_of_clipped_steps_and_reports` |
//! | inf on one rank | `../memopt-runtime/src/train/accumulator/tests.rs::all_skip_what_is_not_finite_in_one` |
//! | an optimizer's step between forward and backward | `train/failures.rs::a_forward_before_a_step_cannot_be_gone_back_through_after_it` |
//! | saved in the middle of an accumulation | `train/states.rs::within_a_window_a_state_is_refused` |
//! | a probe's sample looks binary, the data is not | `traps.rs::each_pack_is_checked_whatever_a_probe_saw` |
//! | something outside the segments changes | `traps.rs::the_users_tensors_are_untouched` |
//! | dtype, shape or device is lost in the round trip | `traps.rs::dtype_shape_and_device_survive_the_round_trip` |
//! | | `plans/dtypes.rs::every_float_dtype_gives_the_same_bits` |
//! | | `plans/inputs.rs::dtypes_survive` |
//! | a derive macro's error without a place, a name that is shadowed | `ui.rs::the_derive_macros_refuse_and_accept` |
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{assert_same, bits, gradient, Values};
use memopt::checkpoint::{checkpoint, mark_changed, Options};
use memopt::compress::{Auto, Bit, Null, Pack};
use memopt::Error;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const CPU: &Device = &Device::Cpu;

fn var(seed: u64, shape: &[usize]) -> Var {
    Var::from_tensor(&Values::new(seed).tensor(shape, DType::F32).unwrap()).unwrap()
}

fn typed(error: &candle_core::Error) -> &Error {
    Error::find(error).unwrap_or_else(|| panic!("not typed: {error}"))
}

fn dense(w: &Var, b: &Var) -> impl Fn(&[Tensor]) -> Result<Tensor> + Clone + Send + 'static {
    let (w, b) = (w.clone(), b.clone());
    move |x| x[0].matmul(&w)?.broadcast_add(&b)?.tanh()
}

#[test]
fn the_table_names_tests_that_are_there() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let table = include_str!("traps.rs").lines().take_while(|line| line.starts_with("//!"));
    let named: Vec<&str> = table.filter_map(|line| line.split('`').nth(1)).collect();
    assert!(named.len() > 40, "{}", named.len());
    for test in named {
        let (file, name) = test.split_once("::").unwrap();
        let source = std::fs::read_to_string(tests.join(file)).unwrap();
        assert!(source.contains(&format!("fn {name}(")), "{test}");
    }
}

#[test]
fn weights_captured_by_a_closure_get_their_gradients() {
    let (w, b) = (var(1, &[4, 3]), var(2, &[3]));
    let x = var(3, &[5, 4]);
    let f = dense(&w, &b);
    let plain = f(&[x.as_tensor().clone()]).unwrap().sum_all().unwrap().backward().unwrap();
    let ours = checkpoint(f, &[&x], "dense").unwrap().sum_all().unwrap().backward().unwrap();
    for v in [&w, &b, &x] {
        assert_eq!(gradient(&ours, v).unwrap(), gradient(&plain, v).unwrap());
    }
}

#[test]
fn a_first_input_that_needs_no_gradient_does_not_cost_the_weights_theirs() {
    let (w, b) = (var(1, &[4, 3]), var(2, &[3]));
    let x = Values::new(3).spikes(&[5, 4], 0.3, DType::F32).unwrap();
    let f = dense(&w, &b);
    let plain = f(std::slice::from_ref(&x)).unwrap().sum_all().unwrap().backward().unwrap();
    let ours = checkpoint(f, &[&x], "first").unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&ours, &w).unwrap(), gradient(&plain, &w).unwrap());
    assert_eq!(gradient(&ours, &b).unwrap(), gradient(&plain, &b).unwrap());
    assert!(ours.get(&x).is_none(), "no gradient of the data is computed");
}

#[test]
fn one_weight_in_two_segments_is_summed_once() {
    let (w, b, c) = (var(1, &[3, 3]), var(2, &[3]), var(3, &[3]));
    let x = var(4, &[2, 3]);
    let (f, g) = (dense(&w, &b), dense(&w, &c));
    let plain = g(&[f(&[x.as_tensor().clone()]).unwrap()]).unwrap().sum_all().unwrap().backward().unwrap();
    let y = checkpoint(f, &[&x], "a").unwrap();
    let ours = checkpoint(g, &[&y], "b").unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&ours, &w).unwrap(), gradient(&plain, &w).unwrap());
}

#[test]
fn the_same_segment_called_twice_in_a_forward_keeps_two_records() {
    let (w, b) = (var(1, &[3, 3]), var(2, &[3]));
    let (x, z) = (var(3, &[2, 3]), var(4, &[2, 3]));
    let f = dense(&w, &b);
    let both = |a: Tensor, b: Tensor| (a * b).unwrap().sum_all().unwrap();
    let plain = both(f(&[x.as_tensor().clone()]).unwrap(), f(&[z.as_tensor().clone()]).unwrap());
    let plain = plain.backward().unwrap();
    let (a, b_) = (checkpoint(f.clone(), &[&x], "twice").unwrap(), checkpoint(f, &[&z], "twice").unwrap());
    let records = |n| memopt::memory::held().segments.iter().any(|s| s.segment == "twice" && s.records == n);
    assert!(records(2));
    let ours = both(a, b_).backward().unwrap();
    assert!(!records(2) && !records(1));
    for v in [&w, &b, &x, &z] {
        assert_eq!(gradient(&ours, v).unwrap(), gradient(&plain, v).unwrap());
    }
}

#[test]
fn a_second_backward_is_a_clear_error() {
    let (w, b) = (var(1, &[3, 3]), var(2, &[3]));
    let loss = checkpoint(dense(&w, &b), &[&var(3, &[2, 3])], "once").unwrap().sum_all().unwrap();
    loss.backward().unwrap();
    let error = loss.backward().unwrap_err();
    assert!(matches!(typed(&error), Error::SecondBackward { function } if function == "once"));
    assert!(error.to_string().contains("run the forward pass again"), "{error}");
}

#[test]
fn non_binary_values_in_a_bit_compressed_input_are_kept_exactly_and_counted() {
    let w = var(1, &[5]);
    let x = Tensor::new(&[2f32, 0.5, -1., f32::NAN, -0.0], CPU).unwrap();
    let captured = w.clone();
    let f = move |x: &[Tensor]| x[0].mul(&captured);
    let plain = f(std::slice::from_ref(&x)).unwrap().sum_all().unwrap().backward().unwrap();
    let y = checkpoint(f, &[&x], Options::new("trap.bits").compressor(Bit)).unwrap();
    let ours = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(gradient(&ours, &w).unwrap(), gradient(&plain, &w).unwrap());
    let counts = memopt::compress::counts().into_iter().find(|c| c.segment == "trap.bits").unwrap();
    assert_eq!(counts.fallbacks, 1);
}

/// An optimizer's probe saw zeros, which look binary; the data is not.
#[test]
fn each_pack_is_checked_whatever_a_probe_saw() {
    let zeros = Tensor::zeros(8, DType::F32, CPU).unwrap();
    assert_eq!(Bit.pack(&zeros).unwrap().encoding(), "bit");
    let counts = Tensor::new(&[0f32, 3., 1., 7., 0., 0., 2., 255.], CPU).unwrap();
    let packed = Bit.pack(&counts).unwrap();
    assert!(packed.is_fallback());
    assert_same(&packed.unpack().unwrap(), &counts);
}

#[test]
fn dtype_shape_and_device_survive_the_round_trip() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::U8] {
        let x = Values::new(1).spikes(&[3, 1, 5], 0.4, dtype).unwrap();
        let y = Bit.pack(&x).unwrap().unpack().unwrap();
        assert_same(&y, &x);
        assert!(y.device().same_device(x.device()));
    }
}

#[test]
fn a_recompute_that_differs_names_the_segment() {
    let x = var(1, &[4]);
    let once = |f: fn(&Tensor, usize) -> Result<Vec<Tensor>>| {
        let calls = AtomicUsize::new(0);
        let f = move |x: &[Tensor]| f(&x[0], calls.fetch_add(1, Ordering::Relaxed));
        let y: Vec<Tensor> = checkpoint(f, &[&x], Options::new("block.2").verify(true)).unwrap();
        let error = y[0].sum_all().unwrap().backward().unwrap_err();
        match typed(&error) {
            Error::RecomputeDiffers { segment, what } => {
                assert_eq!(segment, "block.2");
                what.clone()
            }
            other => panic!("{other}"),
        }
    };
    let shape = once(|x, call| Ok(vec![x.narrow(0, 0, 4 - call)?.sqr()?]));
    assert!(shape.contains("[3]") && shape.contains("[4]"), "{shape}");
    let dtype = once(|x, call| Ok(vec![x.to_dtype([DType::F32, DType::F64][call])?]));
    assert!(dtype.contains("F64"), "{dtype}");
    let number = once(|x, call| Ok(vec![x.sqr()?; 1 + call]));
    assert!(number.contains("2 outputs"), "{number}");
    // the values: what unseeded dropout would do
    let values = once(|x, call| Ok(vec![(x * (1. + call as f64))?]));
    assert!(values.contains("other values"), "{values}");
}

#[test]
fn a_recompute_that_reaches_another_variable_does_not_lose_its_gradient_silently() {
    let (x, w, late) = (var(1, &[4]), var(2, &[4]), var(3, &[4]));
    let calls = AtomicUsize::new(0);
    let f = move |x: &[Tensor]| {
        let w = if calls.fetch_add(1, Ordering::Relaxed) == 0 { &w } else { &late };
        x[0].mul(w)
    };
    let y = checkpoint(f, &[&x], Options::new("switch").verify(false)).unwrap();
    let error = y.sum_all().unwrap().backward().unwrap_err();
    assert!(matches!(typed(&error), Error::RecomputeDiffers { what, .. } if what.contains("variable")));
}

#[test]
fn a_recompute_that_does_not_reach_a_variable_does_not_lose_its_gradient_silently() {
    let (x, w) = (var(1, &[4]), var(2, &[4]));
    let calls = AtomicUsize::new(0);
    let f = move |x: &[Tensor]| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => x[0].mul(&w),
        _ => x[0].affine(1., 0.),
    };
    let y = checkpoint(f, &[&x], Options::new("adapter off").verify(false)).unwrap();
    let error = y.sum_all().unwrap().backward().unwrap_err();
    assert!(
        matches!(typed(&error), Error::RecomputeDiffers { what, .. } if what.contains("does not reach")),
        "{error}"
    );
}

#[test]
fn a_tensor_kept_from_the_first_pass_is_not_gone_back_through_silently() {
    let (x, w) = (var(1, &[4]), var(2, &[4]));
    let cache = std::sync::OnceLock::new();
    let f = move |x: &[Tensor]| Ok(cache.get_or_init(|| x[0].mul(&w).unwrap()).clone());
    let y: Tensor = checkpoint(f, &[&x], Options::new("cached").verify(false)).unwrap();
    let error = y.sum_all().unwrap().backward().unwrap_err();
    assert!(
        matches!(typed(&error), Error::RecomputeDiffers { what, .. } if what.contains("kept from the first pass"))
    );
}

#[test]
fn a_variable_that_is_an_input_is_watched_too() {
    for (verify, says_so) in [(false, true), (true, false)] {
        let (x, w) = (var(1, &[3]), var(2, &[3]));
        let options = Options::new("inputs").verify(verify);
        let y = checkpoint(|x| x[0].mul(&x[1]), &[&x, &w], options).unwrap();
        w.set(&w.affine(2., 0.).unwrap().detach()).unwrap();
        if says_so {
            mark_changed(&w);
        }
        let error = y.sum_all().unwrap().backward().unwrap_err();
        assert!(
            matches!(typed(&error), Error::WeightsChanged { segment, .. } if segment == "inputs"),
            "{error}"
        );
    }
}

#[test]
fn a_captured_activation_is_a_typed_error_that_says_to_pass_it() {
    let (x, w) = (var(1, &[3]), var(2, &[3]));
    let plain = x.affine(2., 1.).unwrap();
    let from_function: Tensor = checkpoint(|x| x[0].sqr(), &[&x], "earlier").unwrap();
    for activation in [plain, from_function] {
        // also where it goes into a nested closure, whose edge to it is a scalar
        let captured = activation.clone();
        let nested = checkpoint(
            move |x| {
                let y: Tensor = checkpoint(|x| x[0].add(&x[1]), &[&x[0], &captured], "inner")?;
                Ok(y)
            },
            &[&x],
            "captures",
        );
        assert!(
            matches!(nested.unwrap_err(), Error::CapturedActivation { shape, .. } if shape.dims() == [3])
        );
        let (captured, w) = (activation.clone(), w.clone());
        let f = move |x: &[Tensor]| x[0].mul(&w)?.add(&captured);
        let error = checkpoint(f, &[&x], "captures").unwrap_err();
        assert!(matches!(&error, Error::CapturedActivation { segment, shape, .. }
            if segment == "captures" && shape.dims() == [3]));
        assert!(error.to_string().contains("pass it as an input"), "{error}");
        // detached, or as an input, it works
        let constant = activation.detach();
        checkpoint(move |x| x[0].add(&constant), &[&x], "constant")
            .unwrap()
            .sum_all()
            .unwrap()
            .backward()
            .unwrap();
        let both = checkpoint(|x| x[0].add(&x[1]), &[x.as_tensor(), &activation], "input").unwrap();
        both.sum_all().unwrap().backward().unwrap();
    }
    // what has no gradient may be captured
    let mask = x.gt(0.).unwrap();
    let masked = checkpoint(move |x| mask.where_cond(&x[0], &x[0].zeros_like()?), &[&x], "mask");
    masked.unwrap().sum_all().unwrap().backward().unwrap();
}

#[test]
fn weights_that_change_between_forward_and_backward_are_found() {
    let x = Tensor::new(&[1f32, 0., 1.], CPU).unwrap();
    let run = |verify: bool, says_so: bool| {
        let w = var(1, &[3]);
        let captured = w.clone();
        let options = Options::new("layer").verify(verify);
        let y = checkpoint(move |x| x[0].mul(&captured), &[&x], options).unwrap();
        w.set(&w.affine(2., 0.).unwrap().detach()).unwrap();
        if says_so {
            mark_changed(&w);
        }
        y.sum_all().unwrap().backward().map(|_| ())
    };
    for (verify, says_so) in [(false, true), (true, false), (true, true)] {
        let error = run(verify, says_so).unwrap_err();
        assert!(
            matches!(typed(&error), Error::WeightsChanged { segment, .. } if segment == "layer"),
            "{error}"
        );
    }
    // nobody says so and nobody looks
    run(false, false).unwrap();
}

#[test]
fn an_optimizers_step_after_backward_is_no_change() {
    let w = var(1, &[3]);
    for _ in 0..3 {
        let captured = w.clone();
        let y = checkpoint(move |x| x[0].mul(&captured), &[&w.as_detached_tensor()], "layer").unwrap();
        let g = y.sum_all().unwrap().backward().unwrap();
        w.set(&(w.as_tensor() - g.get(&w).unwrap()).unwrap().detach()).unwrap();
        mark_changed(&w);
    }
}

/// No end-to-end tolerance: where an input is one ulp off, spikes flip; where it is the same, all bits are.
#[test]
fn spikes_are_compared_by_bits_not_by_tolerance() {
    let threshold = 0.5f32;
    let x = Tensor::new(&[threshold, f32::from_bits(threshold.to_bits() - 1)], CPU).unwrap();
    let w = Var::new(&[1f32, 1.], CPU).unwrap();
    let captured = w.clone();
    let f =
        move |x: &[Tensor]| x[0].mul(&captured)?.ge(threshold as f64)?.to_dtype(DType::F32)?.mul(&captured);
    let plain = f(std::slice::from_ref(&x)).unwrap();
    let ours = checkpoint(f, &[&x], Options::new("spike").compressor(Auto).verify(true)).unwrap();
    assert_eq!(ours.to_vec1::<f32>().unwrap(), [1., 0.]);
    assert_eq!(bits(&ours), bits(&plain));
    ours.sum_all().unwrap().backward().unwrap();
}

/// Nothing outside changes: the user's tensors keep their identity, flags and values.
#[test]
fn the_users_tensors_are_untouched() {
    let (w, b) = (var(1, &[3, 3]), var(2, &[3]));
    let x = var(3, &[2, 3]);
    let y = x.affine(2., 0.).unwrap();
    let before = (x.id(), y.id(), bits(&w), bits(&y), y.track_op(), w.is_variable());
    let out = checkpoint(dense(&w, &b), &[&y], Options::new("look").compressor(Null)).unwrap();
    out.sum_all().unwrap().backward().unwrap();
    assert_eq!(before, (x.id(), y.id(), bits(&w), bits(&y), y.track_op(), w.is_variable()));
}

#[test]
fn a_closure_is_dropped_when_its_backward_is_done() {
    let marker = Arc::new(());
    let held = marker.clone();
    let x = var(1, &[3]);
    let y = checkpoint(
        move |x| {
            let _ = &held;
            x[0].sqr()
        },
        &[&x],
        "owner",
    )
    .unwrap();
    assert_eq!(Arc::strong_count(&marker), 2);
    let loss = y.sum_all().unwrap();
    loss.backward().unwrap();
    assert_eq!(Arc::strong_count(&marker), 1, "freed while the loss and the output still live");
    // and without a backward, when the graph goes
    let held = marker.clone();
    let y = checkpoint(
        move |x| {
            let _ = &held;
            x[0].sqr()
        },
        &[&x],
        "owner",
    );
    drop(y);
    assert_eq!(Arc::strong_count(&marker), 1);
}
