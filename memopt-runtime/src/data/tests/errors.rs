use super::super::{from_fn, Collate, DataError, Loader, Panicked, Random};
use super::data;
use crate::Error;
use candle_core::{DType, Device, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Fails at sample 5 while the flag is set; `panics`, or gives an error.
fn failing(
    panics: bool,
    threads: usize,
) -> (Arc<AtomicBool>, Loader<usize, impl Collate<usize, Batch = Vec<usize>>>) {
    let broken = Arc::new(AtomicBool::new(true));
    let flag = broken.clone();
    let get = move |index: usize| match index == 5 && flag.load(Ordering::SeqCst) {
        true if panics => panic!("no file {index}"),
        true => Err(std::io::Error::other(format!("no file {index}")).into()),
        false => Ok(index),
    };
    let loader = Loader::new(from_fn(12, get)).batch_size(2).threads(threads).prefetch(3);
    (broken, loader.collate(|samples: Vec<usize>| Ok(samples)))
}

#[test]
fn a_failed_sample_is_an_error_in_its_place_and_can_be_tried_again() {
    for (panics, threads) in [(false, 0), (false, 3), (true, 0), (true, 3)] {
        let (broken, loader) = failing(panics, threads);
        let mut batches = loader.epoch(4).unwrap();
        let good: Vec<_> = batches.by_ref().take(2).map(|batch| batch.unwrap().data).collect();
        assert_eq!(good, [[0, 1], [2, 3]]);
        let error = batches.next().unwrap().unwrap_err();
        let Error::Data(DataError::Sample { index: 5, epoch: 4, source }) = &error else { panic!("{error}") };
        assert_eq!(source.is::<Panicked>(), panics);
        assert_eq!(source.is::<std::io::Error>(), !panics);
        assert!(error.to_string().contains("sample 5") && error.to_string().contains("no file 5"), "{error}");
        // It ends there; nothing is left out without a word.
        assert!(batches.next().is_none() && batches.next().is_none());
        assert_eq!(batches.next_position().batch(), 2);

        assert!(loader.epoch(4).unwrap().nth(2).unwrap().is_err());
        broken.store(false, Ordering::SeqCst);
        let rest: Vec<_> = loader.resume(&batches.next_position()).unwrap().map(Result::unwrap).collect();
        assert_eq!(data(&rest), [[4, 5], [6, 7], [8, 9], [10, 11]]);
    }
}

#[test]
fn of_several_failures_in_a_batch_the_first_one_is_reported() {
    let get = |index: usize| match index {
        // The later ones fail sooner.
        3 => {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Err("third".into())
        }
        4.. => Err("later".into()),
        _ => Ok(index),
    };
    let loader = Loader::new(from_fn(8, get)).batch_size(8).collate(|samples: Vec<usize>| Ok(samples));
    for threads in [0, 4] {
        let error = loader.clone().threads(threads).epoch(0).unwrap().next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Data(DataError::Sample { index: 3, .. })), "{error}");
    }
}

#[test]
fn failures_of_augmentations_and_collate_functions_are_named() {
    for threads in [0, 2] {
        let loader = Loader::new((0..6usize).collect::<Vec<_>>()).batch_size(2).threads(threads);
        let change = |index: usize, _: &mut Random| if index == 3 { Err("bad".into()) } else { Ok(index) };
        let kept = |samples: Vec<usize>| Ok(samples);
        let error = first_error(&loader.clone().augment(change).collate(kept));
        assert!(matches!(error, Error::Data(DataError::Sample { index: 3, .. })), "{error}");
        let made = loader.collate(|samples: Vec<usize>| {
            assert!(samples[0] != 2, "cannot");
            Ok(samples)
        });
        let error = first_error(&made);
        let Error::Data(DataError::Batch { batch: 1, epoch: 2, indices, source }) = &error else {
            panic!("{error}")
        };
        assert!(indices == &[2, 3] && source.is::<Panicked>() && error.to_string().contains("cannot"));
    }
}

/// That of an epoch.
fn first_error<C: Collate<usize> + 'static>(loader: &Loader<usize, C>) -> Error {
    loader.epoch(2).unwrap().find_map(Result::err).unwrap()
}

#[test]
fn samples_that_do_not_fit_together_are_told() {
    let sample = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
    let error = |samples: Vec<Tensor>| {
        let n = samples.len();
        Loader::new(samples).batch_size(n).epoch(0).unwrap().next().unwrap().unwrap_err().to_string()
    };
    let first = sample(&[4, 2], DType::F32);
    let text = error(vec![first.clone(), first.clone(), sample(&[5, 2], DType::F32)]);
    assert!(text.contains("number 3 is [5, 2] of F32") && text.contains("[4, 2] of F32"), "{text}");
    let text = error(vec![first, sample(&[4, 2], DType::F64)]);
    assert!(text.contains("number 2 is [4, 2] of F64"), "{text}");
    let text = error(vec![sample(&[], DType::F32)]);
    assert!(text.contains("batch first"), "{text}");
}
