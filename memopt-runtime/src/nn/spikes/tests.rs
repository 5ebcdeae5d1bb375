//! Sums, bits and values that are not finite.

use super::{add_products, add_weight_gradient, are_finite, rounds, SpikeRows, WeightTables, LANES};
use crate::compress::kernels::SimdLevel;
use proptest::prelude::*;

/// Zeros and ones, and values of about one.
fn values(seed: u64, len: usize, percent: Option<u64>) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let value = |next: u64| match percent {
        Some(percent) => f32::from(u8::from(next % 100 < percent)),
        None => (next % 2001) as f32 / 1000. - 1.,
    };
    (0..len).map(|_| value(next())).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The additions that are documented, one after the other: a sum of each 128 columns, added to what was there.
fn one_by_one(spikes: &[f32], table: &[f32], columns: usize, sums: &mut [f32]) {
    for (spikes, sums) in spikes.chunks(columns).zip(sums.chunks_mut(LANES)) {
        for (spikes, table) in spikes.chunks(128).zip(table.chunks(128 * LANES)) {
            if !spikes.contains(&1.) {
                continue;
            }
            for (lane, to) in sums.iter_mut().enumerate() {
                let mut sum = 0.;
                for (column, _) in spikes.iter().enumerate().filter(|(_, spike)| **spike == 1.) {
                    sum += table[column * LANES + lane];
                }
                *to += sum;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_are_the_documented_additions(
        rows in 0..9usize, columns in 1..400usize, percent in 0..101u64, seed in any::<u64>(),
    ) {
        let spikes = values(seed, rows * columns, Some(percent));
        let table = values(seed ^ 1, columns * LANES, None);
        let before = values(seed ^ 2, rows * LANES, None);
        let mut expected = before.clone();
        one_by_one(&spikes, &table, columns, &mut expected);
        for &level in SimdLevel::available() {
            let rows_of = SpikeRows::of_floats(level, &spikes, columns, spikes.len()).unwrap();
            let mut sums = before.clone();
            add_products(level, (rows_of.words(0..rows), rows_of.per_row()), &table, &mut sums);
            prop_assert_eq!(bits(&expected), bits(&sums));
        }
    }

    #[test]
    fn columns_become_rows(rows in 1..140usize, columns in 1..140usize, percent in 0..101u64, seed in any::<u64>()) {
        let spikes = values(seed, rows * columns, Some(percent));
        let turned: Vec<f32> =
            (0..rows * columns).map(|at| spikes[at % rows * columns + at / rows]).collect();
        let of = |values: &[f32], width| {
            SpikeRows::of_floats(SimdLevel::detected(), values, width, values.len()).unwrap()
        };
        prop_assert_eq!(of(&spikes, columns).transposed(), of(&turned, rows));
    }

    #[test]
    fn gradients_are_the_documented_additions(
        units in 1..5usize, positions in 1..200usize, inputs in 1..40usize, outputs in 1..80usize,
        percent in 0..60u64, threads in 1..5usize, seed in any::<u64>(),
    ) {
        let level = SimdLevel::detected();
        let dy = values(seed ^ 1, units * positions * outputs, None);
        // Features by positions.
        let floats: Vec<Vec<f32>> =
            (0..units).map(|unit| values(seed ^ (2 + unit as u64), inputs * positions, Some(percent))).collect();
        let spikes: Vec<SpikeRows> =
            floats.iter().map(|unit| SpikeRows::of_floats(level, unit, positions, unit.len()).unwrap()).collect();
        let spikes: Vec<&SpikeRows> = spikes.iter().collect();
        let lanes = |unit: usize, block: usize, table: &mut Vec<f32>| {
            let value = |position: usize, lane: usize| {
                let output = block * LANES + lane;
                if output < outputs { dy[(unit * positions + position) * outputs + output] } else { 0. }
            };
            table.clear();
            table.extend((0..positions * LANES).map(|at| value(at / LANES, at % LANES)));
        };
        let before = values(seed ^ 99, inputs * outputs, None);
        let mut expected = before.clone();
        for block in 0..outputs.div_ceil(LANES) {
            let channels = (block * LANES..outputs).take(LANES);
            let mut sums = vec![0.; inputs * LANES];
            for (lane, output) in channels.clone().enumerate() {
                (0..inputs).for_each(|input| sums[input * LANES + lane] = before[output * inputs + input]);
            }
            let mut table = Vec::new();
            for unit in (0..units).rev() {
                lanes(unit, block, &mut table);
                one_by_one(&floats[unit], &table, positions, &mut sums);
            }
            for (lane, output) in channels.enumerate() {
                (0..inputs).for_each(|input| expected[output * inputs + input] = sums[input * LANES + lane]);
            }
        }
        let mut to = before;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| add_weight_gradient(level, &spikes, lanes, &mut to));
        prop_assert_eq!(bits(&expected), bits(&to));
    }
}

#[test]
fn only_zeros_and_ones_are_spikes() {
    let level = SimdLevel::detected();
    let mut rows = SpikeRows::new(70);
    assert!(rows.push(level, &[0f32; 70], 0));
    for bad in [-0., 2., -1., f32::NAN, f32::INFINITY, 0.5] {
        let mut row = vec![1f32; 70];
        row[69] = bad;
        assert!(!rows.push(level, &row, 70), "{bad}");
        assert!(SpikeRows::of_floats(level, &row, 70, 70).is_none(), "{bad}");
    }
    assert!(!rows.push(level, &[1f32; 70], 69));
    assert!(rows.push(level, &[1f32; 70], 70));
    assert_eq!(rows.len(), 2);
    assert_eq!(rows.words(1..2), [u64::MAX, 0x3f]);
    // What is allowed is for all rows together.
    assert!(SpikeRows::of_floats(level, &[1f32; 140], 70, 139).is_none());
    assert!(SpikeRows::of_floats(level, &[1f32; 140], 70, 140).is_some());
}

#[test]
fn finite_is_finite() {
    assert!(are_finite(&vec![f32::MAX; 3000]));
    assert!(are_finite(&[-0.0f64, f64::MIN_POSITIVE]));
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = vec![1f32; 3000];
        values[2999] = bad;
        assert!(!are_finite(&values));
    }
}

#[test]
fn blocks_of_few_channels_or_weights_that_are_not_finite_have_no_table() {
    let mut weight = vec![1f32; 70 * 5];
    weight[40 * 5] = f32::NAN;
    let tables = WeightTables::new(&weight, 5);
    // The last one has few output channels.
    assert_eq!([0, 1, 2].map(|block| tables.has(block)), [true, false, false]);
    assert_eq!(tables.of(SimdLevel::detected(), 0..2), [Some(vec![1.; 5 * LANES]), None]);
    assert_eq!(tables.groups().flatten().collect::<Vec<_>>(), [0, 1]);
    // Lanes without an output channel are zero.
    let tables = WeightTables::new(&[1f32; 17 * 5], 5).of(SimdLevel::detected(), 0..1);
    let rows = tables[0].as_ref().unwrap().chunks(LANES);
    assert!(
        rows.clone().count() == 5 && rows.clone().all(|row| row[..17] == [1.; 17] && row[17..] == [0.; 15])
    );
}

#[test]
fn rounds_cover_all_units_in_order() {
    // Bits of 1 MiB each, of a few bytes, of more than a round, and none at all.
    for (units, sizes, longest) in
        [(9, [1024, 8192], 4), (9, [3, 70], 9), (3, [1 << 14, 1 << 14], 1), (0, [0, 0], 0)]
    {
        let rounds: Vec<_> = rounds(units, sizes).collect();
        assert_eq!(rounds.iter().map(|round| round.len()).max().unwrap_or_default(), longest);
        assert_eq!(rounds.into_iter().flatten().collect::<Vec<_>>(), (0..units).collect::<Vec<_>>());
    }
}

#[test]
fn a_gradient_that_is_not_finite_shows_at_all_weights_of_its_channel() {
    let level = SimdLevel::detected();
    let spikes = SpikeRows::of_floats(level, &values(1, 20 * 6, Some(20)), 6, 120).unwrap();
    let lanes = |_: usize, block: usize, table: &mut Vec<f32>| {
        table.clear();
        table.resize(6 * LANES, 1.);
        if block == 1 {
            table[3 * LANES + 4] = f32::INFINITY;
        }
    };
    let mut to = vec![0f32; 40 * 20];
    add_weight_gradient(level, &[&spikes], lanes, &mut to);
    for (index, value) in to.iter().enumerate() {
        assert_eq!(value.is_nan(), index / 20 == 36, "{index}");
    }
}
