//! Rows of spikes and dense rows in one window: exact, and the same bits however it is cut.

use super::dense::Sizes;
use super::event::{add_weight_gradient, forward};
use crate::compress::kernels::{Element, SimdLevel};
use half::bf16;
use proptest::prelude::*;

/// What a row holds: its share of ones, or `None` for other values.
type Row = Option<u8>;

#[derive(Debug, Clone)]
struct Case {
    sizes: Sizes,
    rows: Vec<Row>,
    seed: u64,
}

impl Case {
    fn values(&self, key: u64, len: usize) -> Vec<f32> {
        let mut state = self.seed ^ key << 32;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u32 << 23) as f32 - 1.
            })
            .collect()
    }

    fn x(&self) -> Vec<f32> {
        let mut x = self.values(1, self.rows.len() * self.sizes.inputs);
        for (row, x) in self.rows.iter().zip(x.chunks_mut(self.sizes.inputs)) {
            if let Some(percent) = row {
                x.iter_mut().for_each(|x| *x = f32::from(u8::from((*x + 1.) * 50. < f32::from(*percent))));
            }
        }
        x
    }

    fn dy(&self) -> Vec<f32> {
        self.values(2, self.rows.len() * self.sizes.outputs)
    }

    fn weight(&self) -> Vec<f32> {
        self.values(3, self.sizes.inputs * self.sizes.outputs)
    }

    fn bias(&self) -> Vec<f32> {
        self.values(4, self.sizes.outputs)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let row = prop::sample::select(vec![None, Some(0), Some(3), Some(10), Some(10), Some(80)]);
    (1..4usize, 1..70usize, 1..200usize, 1..100usize, any::<u32>(), any::<bool>())
        .prop_flat_map(move |(steps, rows, inputs, outputs, seed, alike)| {
            let sizes = Sizes { steps, rows, inputs, outputs };
            let count = steps * rows;
            let kinds = prop::collection::vec(row.clone(), if alike { steps } else { count });
            (Just(sizes), kinds, Just(u64::from(seed)), Just(alike))
        })
        .prop_map(|(sizes, kinds, seed, alike)| {
            let each = if alike { sizes.rows } else { 1 };
            let rows = kinds.iter().flat_map(|kind| std::iter::repeat_n(*kind, each)).collect();
            Case { sizes, rows, seed }
        })
}

fn forward_of(level: SimdLevel, sizes: Sizes, x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let mut y = vec![0.; sizes.steps * sizes.rows * sizes.outputs];
    forward(level, sizes, x, weight, Some(bias), &mut y).unwrap();
    y
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Output and gradient of the weight.
fn both(level: SimdLevel, case: &Case) -> [Vec<u32>; 2] {
    let (x, dy, mut dw) = (case.x(), case.dy(), case.weight());
    let y = forward_of(level, case.sizes, &x, &case.weight(), &case.bias());
    add_weight_gradient(level, case.sizes, &x, &dy, &mut dw).unwrap();
    [bits(&y), bits(&dw)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_are_exact(case in cases()) {
        let Sizes { inputs, outputs, .. } = case.sizes;
        let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        let mut dw = vec![0.; weight.len()];
        let y = forward_of(SimdLevel::detected(), case.sizes, &x, &weight, &bias);
        add_weight_gradient(SimdLevel::detected(), case.sizes, &x, &dy, &mut dw).unwrap();
        let wide = |value: f32| f64::from(value);
        for (x, y) in x.chunks(inputs).zip(y.chunks(outputs)) {
            for ((y, weight), bias) in y.iter().zip(weight.chunks(inputs)).zip(&bias) {
                let exact = wide(*bias) + x.iter().zip(weight).map(|(x, w)| wide(*x) * wide(*w)).sum::<f64>();
                prop_assert!((wide(*y) - exact).abs() < 2e-5, "{} {}", y, exact);
            }
        }
        for (index, dw) in dw.iter().enumerate() {
            let terms = x.chunks(inputs).zip(dy.chunks(outputs));
            let exact: f64 = terms.map(|(x, dy)| wide(x[index % inputs]) * wide(dy[index / inputs])).sum();
            prop_assert!((wide(*dw) - exact).abs() < 2e-5, "{} {}", dw, exact);
        }
    }

    #[test]
    fn time_may_be_cut_anywhere(case in cases(), cut in 0..4usize) {
        let Sizes { steps, rows, inputs, outputs } = case.sizes;
        let level = SimdLevel::detected();
        let (x, dy, weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        let cut = cut.min(steps);
        let (mut y, mut dw) = (Vec::new(), case.weight());
        for part in [0..cut, cut..steps] {
            let sizes = Sizes { steps: part.len(), ..case.sizes };
            y.extend(forward_of(level, sizes, &x[part.start * rows * inputs..part.end * rows * inputs], &weight, &bias));
        }
        for part in [cut..steps, 0..cut] {
            let sizes = Sizes { steps: part.len(), ..case.sizes };
            let x = &x[part.start * rows * inputs..part.end * rows * inputs];
            let dy = &dy[part.start * rows * outputs..part.end * rows * outputs];
            add_weight_gradient(level, sizes, x, dy, &mut dw).unwrap();
        }
        prop_assert_eq!(both(level, &case), [bits(&y), bits(&dw)]);
    }

    #[test]
    fn instructions_and_threads_do_not_show(case in cases(), threads in 1..5usize) {
        let expected = both(SimdLevel::detected(), &case);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for &level in SimdLevel::available() {
            prop_assert_eq!(&expected, &pool.install(|| both(level, &case)));
        }
    }

    /// What other rows hold decides neither how a row of spikes is computed nor a dense one.
    #[test]
    fn rows_are_computed_by_their_own_values(mut case in cases(), other in any::<prop::sample::Index>()) {
        let outputs = case.sizes.outputs;
        let (weight, bias) = (case.weight(), case.bias());
        let before = forward_of(SimdLevel::detected(), case.sizes, &case.x(), &weight, &bias);
        let other = other.index(case.rows.len());
        case.rows[other] = if case.rows[other].is_some() { None } else { Some(5) };
        let after = forward_of(SimdLevel::detected(), case.sizes, &case.x(), &weight, &bias);
        for (row, (before, after)) in before.chunks(outputs).zip(after.chunks(outputs)).enumerate() {
            prop_assert!(row == other || bits(before) == bits(after), "{}", row);
        }
    }
}

/// The layer for a group of output channels, as channel chunks run it.
#[test]
fn output_channels_may_be_cut_between_groups() {
    for kinds in [[Some(8); 6], [None, Some(8), Some(8), None, Some(0), Some(8)]] {
        let sizes = Sizes { steps: 2, rows: 3, inputs: 150, outputs: 75 };
        let case = Case { sizes, rows: kinds.to_vec(), seed: 5 };
        let level = SimdLevel::detected();
        let (x, dy, mut weight, bias) = (case.x(), case.dy(), case.weight(), case.bias());
        // Of the second group.
        weight[40 * 150 + 3] = f32::INFINITY;
        let whole = forward_of(level, sizes, &x, &weight, &bias);
        let mut dw = case.weight();
        add_weight_gradient(level, sizes, &x, &dy, &mut dw).unwrap();
        for channels in [0..32, 32..64, 64..75, 0..64] {
            let part = Sizes { outputs: channels.len(), ..sizes };
            let rows = channels.start * 150..channels.end * 150;
            let y = forward_of(level, part, &x, &weight[rows.clone()], &bias[channels.clone()]);
            for (y, whole) in y.chunks(channels.len()).zip(whole.chunks(75)) {
                assert_eq!(bits(y), bits(&whole[channels.clone()]));
            }
            let dy: Vec<f32> = dy.chunks(75).flat_map(|dy| dy[channels.clone()].to_vec()).collect();
            let mut to = case.weight()[rows.clone()].to_vec();
            add_weight_gradient(level, part, &x, &dy, &mut to).unwrap();
            assert_eq!(bits(&to), bits(&dw[rows]));
        }
    }
}

/// Steps whose bits do not exist at the same time: those of a single row take a word for each feature.
#[test]
fn rounds_of_steps_do_not_show() {
    let sizes = Sizes { steps: 140, rows: 1, inputs: 4096, outputs: 20 };
    let case = Case { sizes, rows: [Some(10), Some(10), None, Some(0)].repeat(35), seed: 11 };
    let (level, x, dy, weight) = (SimdLevel::detected(), case.x(), case.dy(), case.weight());
    let (one, mut y, mut dw) = (Sizes { steps: 1, ..sizes }, Vec::new(), case.weight());
    for step in 0..sizes.steps {
        y.extend(forward_of(level, one, &x[step * 4096..][..4096], &weight, &case.bias()));
    }
    for step in (0..sizes.steps).rev() {
        add_weight_gradient(level, one, &x[step * 4096..][..4096], &dy[step * 20..][..20], &mut dw).unwrap();
    }
    assert!(both(level, &case) == [bits(&y), bits(&dw)]);
}

/// Zero times infinity is no number.
#[test]
fn a_weight_that_is_not_finite_is_not_hidden() {
    let sizes = Sizes { steps: 1, rows: 4, inputs: 50, outputs: 70 };
    let case = Case { sizes, rows: vec![Some(0), Some(10), None, Some(10)], seed: 2 };
    for bad in [f32::NAN, f32::INFINITY] {
        let mut weight = case.weight();
        weight[40 * 50 + 4] = bad;
        let y = forward_of(SimdLevel::detected(), sizes, &case.x(), &weight, &case.bias());
        for (index, y) in y.iter().enumerate() {
            assert_eq!(y.is_finite(), index % 70 != 40, "{index}");
        }
    }
}

/// bf16 is computed in f32 and rounded once.
#[test]
fn half_precision_is_rounded_once() {
    let sizes = Sizes { steps: 2, rows: 3, inputs: 90, outputs: 40 };
    let case = Case { sizes, rows: vec![Some(10), None, Some(0), Some(5), Some(5), Some(9)], seed: 7 };
    let half = |values: &[f32]| values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let single = |values: &[bf16]| values.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let (x, dy) = (half(&case.x()), half(&case.dy()));
    let level = SimdLevel::detected();
    let expected = forward_of(level, sizes, &single(&x), &case.weight(), &case.bias());
    let mut y = vec![bf16::ZERO; expected.len()];
    forward(level, sizes, &x, &case.weight(), Some(&case.bias()), &mut y).unwrap();
    assert_eq!(y, half(&expected));
    let [mut dw, mut expected] = [case.weight(), case.weight()];
    add_weight_gradient(level, sizes, &x, &dy, &mut dw).unwrap();
    add_weight_gradient(level, sizes, &single(&x), &single(&dy), &mut expected).unwrap();
    assert_eq!(bits(&dw), bits(&expected));
}

#[test]
fn no_rows() {
    fn none<E: crate::nn::element::Element + Element>() {
        for (steps, rows) in [(0, 3), (3, 0)] {
            let sizes = Sizes { steps, rows, inputs: 4, outputs: 5 };
            let (weight, mut to) = (vec![E::Real::from_f64(1.); 20], vec![E::Real::from_f64(2.); 20]);
            forward::<E>(SimdLevel::detected(), sizes, &[], &weight, None, &mut []).unwrap();
            add_weight_gradient::<E>(SimdLevel::detected(), sizes, &[], &[], &mut to).unwrap();
            assert!(to.iter().all(|&to| to == E::Real::from_f64(2.)));
        }
    }
    use crate::nn::element::Real;
    none::<f32>();
    none::<bf16>();
}
