//! Channels as lanes: between planes, one for each channel, and rows of [`LANES`] channels, one for each pixel.
//!
//! Kernels that work on some tens of channels at once, all at the same pixel, need no shuffles: one vector operation
//! does the same to all of them, whatever the size of the image.

#[cfg(target_arch = "x86_64")]
mod avx512;

use super::cast::{f32s, f32s_mut};
use crate::compress::kernels::SimdLevel;
use crate::nn::element::Real;
use crate::nn::product::OUTPUT_GROUP;

/// Channels of a row. A group of output channels is one block of lanes.
pub(super) const LANES: usize = OUTPUT_GROUP;

/// Planes in memory: those of some channels, and where in each of them to begin.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// Number of planes, [`LANES`] at most.
    pub lanes: usize,
    /// Distance between two planes.
    pub plane: usize,
    /// The first element of the first plane.
    pub start: usize,
    /// Elements of each plane.
    pub len: usize,
}

impl Span {
    /// Whether it lies within so many elements of planes and of rows.
    fn fits(&self, planes: usize, rows: usize) -> bool {
        self.lanes <= LANES
            && self.len * LANES <= rows
            && (self.lanes == 0
                || self.len == 0
                || (self.lanes - 1) * self.plane + self.start + self.len <= planes)
    }

    /// Whether planes do not overlap.
    fn is_disjoint(&self) -> bool {
        self.lanes <= 1 || self.len <= self.plane
    }
}

/// Copies `span` of `planes` to rows of lanes; lanes beyond the span's are left as they are or zeroed.
pub(super) fn to_lanes<R: Real>(level: SimdLevel, planes: &[R], span: Span, rows: &mut [R]) {
    debug_assert!(span.fits(planes.len(), rows.len()));
    #[cfg(target_arch = "x86_64")]
    if level.clamped() == SimdLevel::Avx512 && span.lanes.is_multiple_of(16) {
        if let (Some(planes), Some(rows)) = (f32s(planes), f32s_mut(rows)) {
            return avx512::to_lanes(planes, span, rows);
        }
    }
    let _ = level;
    // Eight planes at a time, so that a row's cache line is written a few times only.
    for first in (0..span.lanes).step_by(8) {
        for lane in first..span.lanes.min(first + 8) {
            let plane = &planes[lane * span.plane + span.start..][..span.len];
            for (row, value) in rows.chunks_exact_mut(LANES).zip(plane) {
                row[lane] = *value;
            }
        }
    }
}

/// Copies rows of lanes to `span` of `planes`, plus a constant for each lane: `add`, [`LANES`] of them.
pub(super) fn from_lanes<R: Real>(
    level: SimdLevel,
    rows: &[R],
    add: Option<&[R; LANES]>,
    planes: &mut [R],
    span: Span,
) {
    debug_assert!(span.fits(planes.len(), rows.len()) && span.is_disjoint());
    #[cfg(target_arch = "x86_64")]
    if level.clamped() == SimdLevel::Avx512 && span.lanes.is_multiple_of(16) {
        if let (Some(rows), Some(planes)) = (f32s(rows), f32s_mut(planes)) {
            let add = add.and_then(|add| f32s(add)?.try_into().ok());
            return avx512::from_lanes(rows, add, planes, span);
        }
    }
    let _ = level;
    for lane in 0..span.lanes {
        let plane = &mut planes[lane * span.plane + span.start..][..span.len];
        let rows = rows.chunks_exact(LANES);
        match add.map(|add| add[lane]) {
            Some(add) => plane.iter_mut().zip(rows).for_each(|(to, row)| *to = row[lane] + add),
            None => plane.iter_mut().zip(rows).for_each(|(to, row)| *to = row[lane]),
        }
    }
}
