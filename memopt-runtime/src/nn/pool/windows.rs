//! Which input pixels an output pixel sees.

use std::ops::Range;

/// Rows or columns of an output; more are an error and not tried.
const LARGEST: usize = 1 << 20;

/// The rows and columns that each row and column of the output sees.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    from: [usize; 2],
    rows: Vec<Range<usize>>,
    columns: Vec<Range<usize>>,
    /// Whether each window is a pair of rows and of columns that no other sees.
    are_pairs: bool,
}

/// Whether ranges are pairs one behind the other.
fn are_pairs(ranges: &[Range<usize>]) -> bool {
    ranges.iter().enumerate().all(|(i, range)| *range == (2 * i..2 * i + 2))
}

impl Windows {
    /// Windows of one size at equal distances; those over padding are cut off at the image.
    pub fn sliding(
        from: [usize; 2],
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<Self, String> {
        let axis = |axis: usize| {
            let (size, kernel, stride, padding) = (from[axis], kernel[axis], stride[axis], padding[axis]);
            if kernel == 0 || stride == 0 || padding > kernel / 2 {
                return Err(format!(
                    "kernel and stride of at least 1 and a padding of at most half the kernel expected, {kernel}, {stride} and {padding} given"
                ));
            }
            let padded = padding.checked_mul(2).and_then(|twice| size.checked_add(twice));
            let Some(room) = padded.and_then(|padded| padded.checked_sub(kernel)).filter(|_| size > 0) else {
                return Err(format!("images of {from:?} are smaller than the kernel, {kernel}"));
            };
            let window = |i: usize| {
                let start = i * stride;
                start.saturating_sub(padding)..(start + kernel - padding).min(size)
            };
            Ok((0..=room / stride).map(window).collect())
        };
        Ok(Windows::of(from, axis(0)?, axis(1)?))
    }

    /// `to` windows that cover the image: from `floor(i from / to)` to `ceil((i + 1) from / to)`.
    pub fn adaptive(from: [usize; 2], to: [usize; 2]) -> Result<Self, String> {
        let axis = |axis: usize| {
            let (from, to) = (from[axis], to[axis]);
            if from == 0 || to == 0 || to > LARGEST {
                return Err(format!(
                    "images and outputs of 1 to {LARGEST} pixels expected, {from} and {to} given"
                ));
            }
            Ok((0..to).map(|i| i * from / to..((i + 1) * from).div_ceil(to)).collect())
        };
        Ok(Windows::of(from, axis(0)?, axis(1)?))
    }

    fn of(from: [usize; 2], rows: Vec<Range<usize>>, columns: Vec<Range<usize>>) -> Self {
        let are_pairs = are_pairs(&rows) && are_pairs(&columns);
        Windows { from, rows, columns, are_pairs }
    }

    /// Columns of the output, if each window is a pair of rows and of columns that no other sees.
    pub fn pairs(&self) -> Option<usize> {
        self.are_pairs.then_some(self.columns.len())
    }

    /// The same windows, of which it is not known that they are pairs.
    #[cfg(test)]
    pub fn without_pairs(self) -> Self {
        Windows { are_pairs: false, ..self }
    }

    /// Size of the output.
    pub fn to(&self) -> [usize; 2] {
        [self.rows.len(), self.columns.len()]
    }

    /// Elements of an input plane.
    pub fn input_plane(&self) -> usize {
        self.from[0] * self.from[1]
    }

    /// Elements of an output plane.
    pub fn output_plane(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Visits the output pixels in order, with the rows and columns that they see.
    pub fn each(&self, mut visit: impl FnMut(usize, &Range<usize>, &Range<usize>)) {
        let mut pixel = 0;
        for rows in &self.rows {
            for columns in &self.columns {
                visit(pixel, rows, columns);
                pixel += 1;
            }
        }
    }

    /// Elements of the largest window.
    pub fn largest(&self) -> usize {
        let longest = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).max().unwrap_or(0);
        longest(&self.rows) * longest(&self.columns)
    }

    /// Distance of two rows of the input.
    pub fn width(&self) -> usize {
        self.from[1]
    }
}
