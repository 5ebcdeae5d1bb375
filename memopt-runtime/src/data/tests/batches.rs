use super::super::{from_fn, DataError, Loader, Position, Random, Stack};
use super::{data, epoch, of_indices};
use crate::Error;
use candle_core::{DType, Device, Tensor};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn batches_do_not_depend_on_threads(
        samples in 1usize..40, size in 1usize..6, threads in 1usize..5, prefetch in 0usize..4, seed: u64,
    ) {
        let loader = of_indices(samples).batch_size(size).shuffle(true).seed(seed);
        let here = epoch(&loader, 2);
        let ahead = epoch(&loader.threads(threads).prefetch(prefetch), 2);
        prop_assert_eq!(data(&here), data(&ahead));
        for (a, b) in here.iter().zip(&ahead) {
            prop_assert_eq!((&a.indices, a.next), (&b.indices, b.next));
            prop_assert_eq!(&a.indices, &a.data);
        }
    }

    #[test]
    fn a_resumed_run_is_the_uninterrupted_one(
        samples in 2usize..30, size in 2usize..6, ranks in 1usize..3, stops in proptest::collection::vec(1usize..7, 0..6),
        threads in 0usize..3, prefetch in 0usize..3,
    ) {
        const EPOCHS: u64 = 3;
        let loader = || {
            of_indices(samples).batch_size(size).shuffle(true).seed(9).shard(ranks - 1, ranks)
                .threads(threads).prefetch(prefetch)
        };
        prop_assume!(loader().batches().is_ok());
        let all: Vec<_> = (0..EPOCHS).flat_map(|number| data(&epoch(&loader(), number))).collect();
        let mut resumed = Vec::new();
        let mut position = loader().beginning().unwrap();
        let mut stops = stops.into_iter();
        while position.epoch() < EPOCHS {
            // A new process, which stops after so many batches, with others being made.
            let stop = stops.next().unwrap_or(usize::MAX);
            let text = serde_json::to_string(&position).unwrap();
            let mut batches = loader().resume(&serde_json::from_str::<Position>(&text).unwrap()).unwrap();
            for batch in batches.by_ref().take(stop) {
                let batch = batch.unwrap();
                resumed.push(batch.data);
                position = batch.next;
            }
            prop_assert_eq!(position, batches.next_position());
        }
        prop_assert_eq!(resumed, all);
    }
}

#[test]
fn positions_of_other_orders_are_refused_with_what_differs() {
    let position = of_indices(10).batch_size(2).seed(1).epoch(0).unwrap().next().unwrap().unwrap().next;
    assert_eq!((position.epoch(), position.batch()), (0, 1));
    // Threads do not matter, nor does the rank.
    assert!(of_indices(10).batch_size(2).seed(1).threads(2).resume(&position).is_ok());
    for (loader, differs) in [
        (of_indices(11).batch_size(2).seed(1), "samples: 10 then, 11 now"),
        (of_indices(10).batch_size(5).seed(1), "batch size: 2 then, 5 now"),
        (of_indices(10).batch_size(2).seed(2), "seed: 1 then, 2 now"),
        (of_indices(10).batch_size(2).seed(1).shuffle(true), "shuffle: 0 then, 1 now"),
        (of_indices(10).batch_size(2).seed(1).shard(0, 5), "ranks: 1 then, 5 now"),
        (of_indices(10).batch_size(2).seed(1).drop_last(true), "drop_last: 0 then, 1 now"),
    ] {
        let error = loader.resume(&position).unwrap_err();
        assert!(matches!(error, Error::Data(DataError::OtherOrder { .. })));
        assert!(error.to_string().contains(differs), "{error}");
    }
    let text = serde_json::to_string(&position).unwrap().replace("\"batch\":1", "\"batch\":5");
    let error =
        of_indices(10).batch_size(2).seed(1).resume(&serde_json::from_str(&text).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Data(DataError::NoSuchBatch { batch: 5, batches: 5 })));
}

#[test]
fn random_numbers_of_a_sample_depend_on_seed_epoch_and_index_only() {
    let numbers = |size: usize, threads, rank, ranks, seed, epoch| {
        let loader = Loader::new((0..12usize).collect::<Vec<_>>())
            .augment(|index, random: &mut Random| Ok((index, random.bits(), random.key())))
            .augment(|(index, first, key), random| Ok((index, first, random.normal().to_bits(), key)))
            .collate(Ok)
            .batch_size(size)
            .shuffle(true)
            .seed(seed)
            .threads(threads)
            .shard(rank, ranks);
        let batches = loader.epoch(epoch).unwrap();
        let mut all: Vec<_> = batches.flat_map(|batch| batch.unwrap().data).collect();
        all.sort_by_key(|&(index, ..)| index);
        all
    };
    let all = numbers(4, 0, 0, 1, 1, 0);
    assert!(all.iter().all(|(index, _, _, key)| (key.index, key.epoch, key.seed) == (*index, 0, 1)));
    assert_eq!(numbers(3, 3, 0, 1, 1, 0), all);
    let mut of_ranks = [numbers(2, 1, 0, 2, 1, 0), numbers(2, 0, 1, 2, 1, 0)].concat();
    of_ranks.sort_by_key(|&(index, ..)| index);
    assert_eq!(of_ranks, all);
    // All numbers are different ones.
    let others = [numbers(4, 0, 0, 1, 1, 1), numbers(4, 0, 0, 1, 2, 0), all].concat();
    let mut first: Vec<u64> = others.iter().map(|x| x.1).collect();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 36);
}

#[test]
fn numbers_are_drawn_from_one_stream_in_any_mixture() {
    struct Drawn {
        mixed: [f64; 4],
        below: usize,
        chance: bool,
        zero: usize,
    }
    let loader = Loader::new(vec![(); 1000]).augment(|(), random: &mut Random| {
        let mixed = [random.uniform(), random.normal(), random.uniform(), random.normal()];
        Ok(Drawn { mixed, below: random.below(7), chance: random.chance(0.25), zero: random.below(0) })
    });
    let all: Vec<Drawn> =
        loader.collate(Ok).epoch(0).unwrap().flat_map(|batch| batch.unwrap().data).collect();
    let mean = |f: &dyn Fn(&Drawn) -> f64| all.iter().map(f).sum::<f64>() / 1000.;
    // Four standard deviations.
    assert!((mean(&|x| x.mixed[0]) - 0.5).abs() < 0.04 && (mean(&|x| x.mixed[2]) - 0.5).abs() < 0.04);
    assert!(mean(&|x| x.mixed[1]).abs() < 0.13 && (mean(&|x| x.mixed[3] * x.mixed[3]) - 1.).abs() < 0.18);
    assert!(
        (mean(&|x| x.below as f64) - 3.).abs() < 0.26
            && (mean(&|x| f64::from(u8::from(x.chance))) - 0.25).abs() < 0.06
    );
    assert!(all
        .iter()
        .all(|x| x.below < 7 && x.zero == 0 && x.mixed[0] != x.mixed[2] && x.mixed[1] != x.mixed[3]));
}

#[test]
fn stacked_batches_are_the_samples_beside_each_other() {
    let sample = |index: usize| {
        let x =
            Tensor::arange(0u32, 24, &Device::Cpu)?.affine(1., 100. * index as f64)?.reshape((2, 3, 4))?;
        // As a view: other strides.
        Ok((x.to_dtype(DType::F32)?.transpose(1, 2)?, (index as i64, x.narrow(2, 0, 1)?)))
    };
    let loader = Loader::new(from_fn(5, sample)).batch_size(3);
    for (stack, dim) in [(Stack::TimeFirst, 1), (Stack::BatchFirst, 0)] {
        let loader = loader.clone().collate(stack);
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let (x, (labels, targets)) = batch.data;
            assert!(x.is_contiguous() && x.dims()[dim] == batch.indices.len() && x.rank() == 4);
            for (place, &index) in batch.indices.iter().enumerate() {
                let (expected, (label, target)) = sample(index).unwrap();
                let values = |x: &Tensor| {
                    x.flatten_all().unwrap().to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap()
                };
                let got = x.narrow(dim, place, 1).unwrap().squeeze(dim).unwrap();
                assert_eq!((values(&got), got.dims()), (values(&expected), expected.dims()));
                assert_eq!(labels.to_vec1::<i64>().unwrap()[place], label);
                // Targets are batch first whatever the inputs are.
                assert_eq!(values(&targets.get(place).unwrap()), values(&target));
            }
        }
    }
}
