//! Matrix products. They run on one thread, so that their bits depend on their shape only.
#![allow(unsafe_code)]

use super::element::Real;
use super::input::wrong;
use crate::Result;

/// Output channels of a convolution or features of a linear layer that one forward product makes, under every plan: a
/// plan that recomputes some of the output channels gets the same bits.
pub(crate) const OUTPUT_GROUP: usize = 32;

/// Elements that a product `m x k` by `k x n` copies its matrices to, about, in the order in which `gemm` wants them; `are_rows`
/// says of each of the two whether the elements of its rows follow each other. What it does depends on the machine's caches too.
pub(crate) fn packed((m, n, k): (usize, usize, usize), are_rows: [bool; 2]) -> usize {
    /// Lanes, columns of a kernel, and elements of a row that are multiplied at a time, at most.
    const SIZES: [usize; 3] = [16, 48, 512];
    /// Rows of the first that it makes room for.
    const ROOM: usize = 1024;
    let [lanes, columns, depth] = SIZES;
    let depth = k.min(depth);
    let second = if are_rows[1] && n.is_multiple_of(lanes) { 0 } else { n.next_multiple_of(columns) };
    let first = if are_rows[0] || n <= 2 * columns { 0 } else { ROOM.min(m.next_multiple_of(8)) };
    /// Elements of a result that is made without.
    const SMALL: usize = 256;
    if k <= 2 || m <= 1 || n <= 1 || m * n <= SMALL {
        0
    } else {
        depth * (first + second)
    }
}

/// A matrix in a slice: elements and the distances between rows and between columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, R> {
    pub values: &'a [R],
    pub row: usize,
    pub column: usize,
}

/// `to = a b`, or `to += a b`: `a` is `m x k`, `b` is `k x n`; the rows of `to` are `stride` apart and contiguous.
pub(crate) fn multiply<R: Real>(
    (m, n, k): (usize, usize, usize),
    (to, stride): (&mut [R], usize),
    accumulate: bool,
    a: Matrix<'_, R>,
    b: Matrix<'_, R>,
) -> Result<()> {
    if m == 0 || n == 0 {
        return Ok(());
    }
    let fits = |len: usize, rows: usize, row: usize, columns: usize, column: usize| {
        rows == 0 || columns == 0 || (rows - 1) * row + (columns - 1) * column < len
    };
    let disjoint = m == 1 || stride >= n;
    if !(disjoint
        && fits(to.len(), m, stride, n, 1)
        && fits(a.values.len(), m, a.row, k, a.column)
        && fits(b.values.len(), k, b.row, n, b.column))
    {
        let what = format!("a {m} x {k} by {k} x {n} product reaches beyond its matrices");
        return Err(wrong("matrix product", what));
    }
    if k == 0 {
        if !accumulate {
            (0..m).for_each(|row| to[row * stride..][..n].fill(R::ZERO));
        }
        return Ok(());
    }
    // SAFETY: every element that the product reads or writes lies inside its slice: checked above. The elements of `to`
    // are distinct, and the borrow checker keeps `to` apart from `a` and `b`. `R` is f32 or f64, which `gemm` takes.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            to.as_mut_ptr(),
            1,
            stride as isize,
            accumulate,
            a.values.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.values.as_ptr(),
            b.column as isize,
            b.row as isize,
            R::ONE,
            R::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
    Ok(())
}
