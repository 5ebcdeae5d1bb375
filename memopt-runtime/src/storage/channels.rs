//! Some channels of a window `[T, N, C, ...]`: copied out and written back, by several threads at once.
#![allow(unsafe_code)]

use candle_core::CpuStorage;
use half::{bf16, f16};
use std::marker::PhantomData;
use std::ops::Range;

/// Where some channels are in each image of a row-major buffer.
#[derive(Debug, Clone)]
struct Runs {
    /// Where the first image begins.
    start: usize,
    images: usize,
    /// Elements of one image.
    image: usize,
    /// The elements of the channels in an image.
    run: Range<usize>,
}

impl Runs {
    /// `None` if there are not as many time steps or channels, or the buffer has another size.
    fn of(len: usize, dims: &[usize], steps: &Range<usize>, channels: Range<usize>) -> Option<Self> {
        let plane: usize = dims.get(3..)?.iter().product();
        let (window, batch, all) = (*dims.first()?, *dims.get(1)?, *dims.get(2)?);
        let (images, image) = (steps.len() * batch, all * plane);
        let fits = channels.start <= channels.end && channels.end <= all && len == window * batch * image;
        (fits && steps.start <= steps.end && steps.end <= window).then(|| Runs {
            start: steps.start * batch * image,
            images,
            image,
            run: channels.start * plane..channels.end * plane,
        })
    }
}

/// A copy of some channels of `[T, N, C, ...]`; `None` if there are not as many.
pub(crate) fn gather(storage: &CpuStorage, dims: &[usize], channels: Range<usize>) -> Option<CpuStorage> {
    let runs = Runs::of(super::len(storage), dims, &(0..*dims.first()?), channels)?;
    macro_rules! gather {
        ($($variant:ident)*) => {
            match storage {
                $(CpuStorage::$variant(v) => {
                    let mut to = Vec::with_capacity(runs.images * runs.run.len());
                    let images = v.chunks_exact(runs.image.max(1));
                    images.for_each(|image| to.extend_from_slice(&image[runs.run.clone()]));
                    Some(CpuStorage::$variant(to))
                })*
                _ => None,
            }
        };
    }
    gather!(BF16 F16 F32 F64)
}

/// Channels of a window that nobody else can reach.
pub(crate) struct ChannelsMut<'a> {
    elements: Elements,
    runs: Runs,
    window: PhantomData<&'a mut CpuStorage>,
}

#[derive(Clone, Copy)]
enum Elements {
    BF16(*mut bf16),
    F16(*mut f16),
    F32(*mut f32),
    F64(*mut f64),
}

// SAFETY: it is a `&mut` to the elements of its channels: no two of a window have a channel in common (`split`), and it
// borrows the window mutably for as long as it lives.
unsafe impl Send for ChannelsMut<'_> {}

/// The window cut into these channels; `None` if they are not ascending and disjoint, there are not as many, or the
/// elements are no floats.
pub(crate) fn split<'a>(
    storage: &'a mut CpuStorage,
    dims: &[usize],
    channels: &[Range<usize>],
) -> Option<Vec<ChannelsMut<'a>>> {
    split_steps(storage, dims, &(0..*dims.first()?), channels)
}

/// Some time steps of the window cut into these channels; `None` as in [`split`], or if there are not as many steps.
pub(crate) fn split_steps<'a>(
    storage: &'a mut CpuStorage,
    dims: &[usize],
    steps: &Range<usize>,
    channels: &[Range<usize>],
) -> Option<Vec<ChannelsMut<'a>>> {
    if channels.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return None;
    }
    let len = super::len(storage);
    let runs: Vec<Runs> = channels
        .iter()
        .map(|channels| Runs::of(len, dims, steps, channels.clone()))
        .collect::<Option<_>>()?;
    let elements = match storage {
        CpuStorage::BF16(v) => Elements::BF16(v.as_mut_ptr()),
        CpuStorage::F16(v) => Elements::F16(v.as_mut_ptr()),
        CpuStorage::F32(v) => Elements::F32(v.as_mut_ptr()),
        CpuStorage::F64(v) => Elements::F64(v.as_mut_ptr()),
        _ => return None,
    };
    Some(runs.into_iter().map(|runs| ChannelsMut { elements, runs, window: PhantomData }).collect())
}

impl ChannelsMut<'_> {
    /// A copy of the channels.
    pub(crate) fn read(&self) -> CpuStorage {
        macro_rules! read {
            ($($variant:ident)*) => {
                match self.elements {
                    $(Elements::$variant(from) => {
                        let mut to = Vec::with_capacity(self.runs.images * self.runs.run.len());
                        // SAFETY: the runs lie inside the window (`Runs::of`), and are this one's alone.
                        self.each(|at| to.extend_from_slice(unsafe {
                            std::slice::from_raw_parts(from.add(at), self.runs.run.len())
                        }));
                        CpuStorage::$variant(to)
                    })*
                }
            };
        }
        read!(BF16 F16 F32 F64)
    }

    /// Writes over the channels; false if `from` has another size or dtype.
    pub(crate) fn write(&mut self, from: &CpuStorage) -> bool {
        let n = self.runs.run.len();
        if super::len(from) != self.runs.images * n {
            return false;
        }
        macro_rules! write {
            ($($variant:ident)*) => {
                match (self.elements, from) {
                    $((Elements::$variant(to), CpuStorage::$variant(from)) => {
                        let mut parts = from.chunks_exact(n.max(1));
                        self.each(|at| if let Some(part) = parts.next() {
                            // SAFETY: as in `read`; `&mut self` makes it the only access.
                            unsafe { std::slice::from_raw_parts_mut(to.add(at), n) }.copy_from_slice(part)
                        });
                        true
                    })*
                    _ => false,
                }
            };
        }
        write!(BF16 F16 F32 F64)
    }

    /// Visits the beginning of the run in each image.
    fn each(&self, f: impl FnMut(usize)) {
        let Runs { start, images, image, run } = &self.runs;
        (0..*images).map(|index| start + index * image + run.start).for_each(f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(n: usize) -> CpuStorage {
        CpuStorage::F32((0..n).map(|i| i as f32).collect())
    }

    fn values(storage: &CpuStorage) -> Vec<f32> {
        match storage {
            CpuStorage::F32(v) => v.clone(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn channels_are_read_and_written_in_each_image() {
        let dims = [2, 1, 3, 2];
        let mut storage = window(12);
        assert_eq!(values(&gather(&storage, &dims, 1..2).unwrap()), [2., 3., 8., 9.]);
        let mut parts = split(&mut storage, &dims, &[0..1, 2..3]).unwrap();
        assert_eq!(values(&parts[1].read()), [4., 5., 10., 11.]);
        std::thread::scope(|scope| {
            for part in &mut parts {
                scope.spawn(|| {
                    let doubled = values(&part.read()).iter().map(|v| v * 2.).collect();
                    assert!(part.write(&CpuStorage::F32(doubled)));
                });
            }
        });
        assert_eq!(values(&storage), [0., 2., 2., 3., 8., 10., 12., 14., 8., 9., 20., 22.]);
    }

    #[test]
    fn other_time_steps_stay_as_they_are() {
        let mut storage = window(12);
        let mut parts = split_steps(&mut storage, &[2, 1, 3, 2], &(1..2), &[0..1, 2..3]).unwrap();
        assert_eq!(values(&parts[1].read()), [10., 11.]);
        assert!(parts[1].write(&CpuStorage::F32(vec![-1., -2.])));
        assert_eq!(values(&storage), [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., -1., -2.]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let dims = [2, 1, 3, 2];
        assert!(gather(&window(12), &dims, 2..4).is_none());
        assert!(gather(&window(11), &dims, 0..1).is_none());
        assert!(split_steps(&mut window(12), &dims, &(1..3), std::slice::from_ref(&(0..1))).is_none());
        assert!(split(&mut window(12), &dims, &[0..2, 1..3]).is_none(), "they overlap");
        assert!(split(&mut CpuStorage::U8(vec![0; 12]), &dims, &[0..1, 1..2]).is_none());
        let mut storage = window(12);
        let mut parts = split(&mut storage, &dims, std::slice::from_ref(&(0..1))).unwrap();
        assert!(!parts[0].write(&window(3)));
        assert!(!parts[0].write(&CpuStorage::F64(vec![0.; 4])));
        let empty = [0, 1, 3, 2];
        assert_eq!(values(&gather(&window(0), &empty, 0..2).unwrap()), [] as [f32; 0]);
    }
}
