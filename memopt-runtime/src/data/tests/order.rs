use super::super::{DataError, Order};
use super::{data, epoch, of_indices};
use proptest::prelude::*;

fn order(samples: usize, batch_size: usize, ranks: usize, drop_last: bool) -> Order {
    Order { samples, batch_size, ranks, drop_last, shuffle: true, seed: 5 }
}

/// The shares of all ranks: by step, then rank.
fn shares(order: Order) -> Vec<Vec<std::ops::Range<usize>>> {
    let batches = order.batches().unwrap();
    let of_step = |batch| {
        let step = order.step(batch, batches);
        (0..order.ranks).map(|rank| order.share(&step, rank)).collect()
    };
    (0..batches).map(of_step).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ranks_partition_an_epoch(samples in 1usize..200, size in 1usize..9, ranks in 1usize..7, drop_last: bool) {
        let order = order(samples, size, ranks, drop_last);
        let Ok(batches) = order.batches() else {
            // Only where it cannot be done.
            let full = samples / (size * ranks);
            let cannot = samples < ranks || (size == 1 && samples % ranks != 0);
            prop_assert!(if drop_last { full == 0 } else { cannot }, "refused in vain");
            return Ok(());
        };
        let shares = shares(order);
        // One behind the other, without a gap.
        let mut end = 0;
        for share in shares.iter().flatten() {
            prop_assert!(share.start == end && !share.is_empty() && share.len() <= size);
            end = share.end;
        }
        prop_assert_eq!(end, if drop_last { batches * size * ranks } else { samples });
        if drop_last {
            prop_assert!(samples - end < size * ranks);
        }
        for (step, shares) in shares.iter().enumerate() {
            let sizes = shares.iter().map(ExactSizeIterator::len);
            prop_assert!(sizes.clone().max().unwrap() - sizes.clone().min().unwrap() <= 1);
            // Full ones, but for the last, or the last two if the last has one sample for each rank.
            let full = sizes.clone().sum::<usize>() == size * ranks;
            prop_assert!(full || step + 1 == batches
                || (step + 2 == batches && shares.len() == ranks && samples % (size * ranks) < ranks));
        }
    }

    #[test]
    fn several_ranks_have_the_steps_of_one_with_larger_batches(
        steps in 1usize..6, size in 1usize..5, ranks in 1usize..5, seed: u64, remainder in 0usize..20,
    ) {
        let remainder = remainder % (size * ranks);
        prop_assume!(remainder == 0 || remainder >= ranks);
        let samples = steps * size * ranks + remainder;
        let one = epoch(&of_indices(samples).batch_size(size * ranks).shuffle(true).seed(seed), 3);
        let many: Vec<_> = (0..ranks)
            .map(|rank| epoch(&of_indices(samples).batch_size(size).shuffle(true).seed(seed).shard(rank, ranks), 3))
            .collect();
        for (step, whole) in one.iter().enumerate() {
            let together: Vec<usize> = many.iter().flat_map(|rank| rank[step].data.clone()).collect();
            prop_assert_eq!(&together, &whole.data);
            let share: f64 = many.iter().map(|rank| rank[step].share()).sum();
            prop_assert!((share - 1.).abs() < 1e-12);
            prop_assert!(many.iter().all(|rank| rank[step].of_all_ranks == whole.data.len()));
        }
        prop_assert!(many.iter().all(|rank| rank.len() == one.len()));
    }
}

#[test]
fn an_epoch_of_all_ranks_is_every_sample_once() {
    for (samples, size, ranks) in [(10, 2, 3), (13, 3, 4), (7, 2, 3), (5, 2, 5), (64, 8, 2), (9, 4, 1)] {
        let of_rank = |rank| epoch(&of_indices(samples).batch_size(size).shuffle(true).shard(rank, ranks), 1);
        let all: Vec<_> = (0..ranks).map(of_rank).collect();
        let mut indices: Vec<usize> = all.iter().flatten().flat_map(|batch| batch.indices.clone()).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..samples).collect::<Vec<_>>());
        assert!(all.iter().all(|rank| rank.len() == all[0].len()));
    }
}

#[test]
fn without_shuffling_the_order_is_that_of_the_data_set() {
    assert_eq!(data(&epoch(&of_indices(5).batch_size(2), 4)), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(data(&epoch(&of_indices(5).batch_size(2).drop_last(true), 0)), [[0, 1], [2, 3]]);
}

/// Other ones would be another training for the same seed.
#[test]
fn permutations_are_what_they_always_were() {
    let permutation = |seed, epoch| Order { seed, ..order(8, 1, 1, false) }.permutation(epoch);
    assert_eq!(permutation(5, 0), EXPECTED[0]);
    assert_eq!(permutation(5, 1), EXPECTED[1]);
    assert_eq!(permutation(6, 0), EXPECTED[2]);
}

/// By a program of its own, in another language.
const EXPECTED: [[usize; 8]; 3] =
    [[6, 3, 7, 2, 0, 4, 1, 5], [2, 6, 5, 3, 7, 4, 0, 1], [7, 6, 2, 5, 0, 4, 1, 3]];

#[test]
fn every_permutation_is_as_likely_as_another() {
    let mut counts = std::collections::BTreeMap::new();
    for epoch in 0..24_000 {
        *counts.entry(order(4, 1, 1, false).permutation(epoch)).or_insert(0) += 1;
    }
    // 1000 each, with a standard deviation of 31.
    assert_eq!(counts.len(), 24);
    assert!(counts.values().all(|&count: &i32| (count - 1000).abs() < 160), "{counts:?}");
}

#[test]
fn what_cannot_be_shared_out_says_so() {
    let wrong = |order: Order| match order.batches() {
        Err(DataError::Options { what }) => what,
        other => panic!("{other:?}"),
    };
    assert!(wrong(order(0, 1, 1, false)).contains("no samples"));
    assert!(wrong(order(5, 0, 1, false)).contains("0 samples"));
    assert!(wrong(order(5, 1, 0, false)).contains("0 ranks"));
    assert!(wrong(order(3, 2, 4, false)).contains("without a sample"));
    assert!(wrong(order(5, 1, 2, false)).contains("batches of 2 or more"));
    assert!(wrong(order(5, 3, 2, true)).contains("drop_last"));
    assert!(wrong(order(5, usize::MAX, usize::MAX, true)).contains("less than one step"));
    assert!(of_indices(4).shard(2, 2).epoch(0).unwrap_err().to_string().contains("rank 2 of 2"));
}
