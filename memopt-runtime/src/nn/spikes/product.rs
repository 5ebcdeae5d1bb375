//! The inner loop.

use super::{LANES, TILE};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::Real;
use crate::nn::simd::{run, Loops};

/// `sums[r] += sum over the spikes c of row r of table[c]`
///
/// `words` are rows of bits, `per_row` words each; `table` has [`LANES`] elements for each column, `sums` for each row. Each
/// tile of a row makes a sum of its own, from zero.
#[inline]
pub(crate) fn add_products<R: Real>(
    level: SimdLevel,
    (words, per_row): (&[u64], usize),
    table: &[R],
    sums: &mut [R],
) {
    run(level, Products { words, per_row, table, sums });
}

struct Products<'a, R> {
    words: &'a [u64],
    per_row: usize,
    table: &'a [R],
    sums: &'a mut [R],
}

impl<R: Real> Loops for Products<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // A tile of the table serves all rows.
        let tiles = self.table.chunks(TILE * u64::BITS as usize * LANES).enumerate();
        for (tile, table) in tiles {
            let table = table.as_chunks::<LANES>().0;
            let tile = tile * TILE..((tile + 1) * TILE).min(self.per_row);
            let rows = self.words.chunks_exact(self.per_row);
            for (words, sums) in rows.zip(self.sums.as_chunks_mut::<LANES>().0) {
                let words = &words[tile.clone()];
                if words.iter().all(|&word| word == 0) {
                    continue;
                }
                // Not through a closure, which would keep the sums in memory.
                let mut sum = [R::ZERO; LANES];
                for (index, &word) in words.iter().enumerate() {
                    let mut word = word;
                    while word != 0 {
                        let row = &table[index * u64::BITS as usize + word.trailing_zeros() as usize];
                        word &= word - 1;
                        for lane in 0..LANES {
                            sum[lane] += row[lane];
                        }
                    }
                }
                for lane in 0..LANES {
                    sums[lane] += sum[lane];
                }
            }
        }
    }
}
