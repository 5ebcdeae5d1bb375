//! What tiles rely on: an element of a product does not depend on the other rows and columns.

use super::Random;
use crate::nn::product::{multiply, Matrix};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// As `winograd` calls it: at most 512 deep, at least 16 rows (a multiple of that) and 32 columns (also), `a` by rows and
    /// `b` by columns or by rows.
    #[test]
    fn an_element_of_a_product_is_the_same_in_any_part(
        (m, n, k) in (1..12usize, 1..8usize, 3..513usize),
        (rows, columns) in (any::<[bool; 12]>(), any::<[bool; 10]>()),
        by_rows in any::<bool>(),
        accumulate in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (m, n) = (16 * m, 32 * n);
        let mut random = Random(seed);
        let mut values = |len: usize| (0..len).map(|_| random.normal()).collect::<Vec<f32>>();
        let (a, b, before) = (values(m * k), values(n * k), values(m * n));
        let (row, column) = if by_rows { (n, 1) } else { (1, k) };
        let product = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>, to: &mut [f32]| {
            let a = Matrix { values: &a[rows.start * k..], row: k, column: 1 };
            let b = Matrix { values: &b[columns.start * column..], row, column };
            let to = (&mut to[rows.start * n + columns.start..], n);
            multiply((rows.len(), columns.len(), k), to, accumulate, a, b).unwrap();
        };
        let mut whole = before.clone();
        product(0..m, 0..n, &mut whole);
        let borders = |len: usize, flags: &[bool], step: usize| {
            let mut borders: Vec<usize> = (step..len).step_by(step).filter(|at| flags[at / step]).collect();
            borders.insert(0, 0);
            borders.push(len);
            borders
        };
        let mut parts = before.clone();
        for rows in borders(m, &rows, 16).windows(2) {
            for columns in borders(n, &columns, 32).windows(2) {
                product(rows[0]..rows[1], columns[0]..columns[1], &mut parts);
            }
        }
        prop_assert_eq!(super::bits(&whole), super::bits(&parts));
    }
}
