//! The order of a tensor in memory: taken off before packing, put back after unpacking.
//!
//! Candle's kernels take other paths, with other roundings, for tensors that are not contiguous. A recompute must see
//! the order in memory that the first pass saw, or a spike may flip.

use crate::Result;
use candle_core::{Layout, Shape, Tensor};

/// How a tensor lies in memory, apart from its elements.
///
/// *Compact* is the same tensor without repetition and gaps, contiguous, its dimensions in the order of the memory.
#[derive(Debug, Clone)]
pub(super) struct Arrangement {
    shape: Shape,
    /// `order[i]` is the tensor's dimension that is the i-th in memory; `None`: contiguous, or made so.
    strided: Option<Strided>,
}

#[derive(Debug, Clone)]
struct Strided {
    order: Vec<usize>,
    /// Whether dimension i in memory is followed by a gap. Candle tells gaps from none, but not their sizes.
    gaps: Vec<bool>,
    /// Whether the elements of the innermost dimension are apart.
    inner_gap: bool,
    /// Which of the tensor's dimensions repeat one element.
    repeated: Vec<bool>,
}

impl Arrangement {
    pub(super) fn of(layout: &Layout) -> Self {
        let strided = if layout.is_contiguous() { None } else { Strided::of(layout) };
        Arrangement { shape: layout.shape().clone(), strided }
    }

    /// Whether a tensor that lies so can be packed: one that overlaps itself in another way than by repetition has no
    /// compact form.
    pub(super) fn can_pack(layout: &Layout) -> bool {
        layout.is_contiguous() || layout.shape().elem_count() == 0 || Strided::of(layout).is_some()
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn compact_shape(&self) -> Shape {
        match &self.strided {
            None => self.shape.clone(),
            Some(s) => Shape::from(s.order.iter().map(|&d| self.single(s, d)).collect::<Vec<_>>()),
        }
    }

    /// Length of a dimension without repetition.
    fn single(&self, strided: &Strided, dim: usize) -> usize {
        if strided.repeated[dim] {
            1
        } else {
            self.shape.dims()[dim]
        }
    }

    /// The compact tensor; copies only if there are gaps.
    pub(super) fn compact(&self, x: &Tensor) -> Result<Tensor> {
        if self.shape.elem_count() == 0 {
            // Candle cannot copy a view that begins beyond the end of its buffer.
            return Ok(Tensor::zeros(&self.shape, x.dtype(), x.device())?);
        }
        let Some(strided) = &self.strided else { return Ok(x.contiguous()?) };
        let mut x = x.clone();
        for (dim, _) in strided.repeated.iter().enumerate().filter(|(_, repeated)| **repeated) {
            x = x.narrow(dim, 0, 1)?;
        }
        Ok(x.permute(strided.order.as_slice())?.contiguous()?)
    }

    /// The tensor from its compact form.
    pub(super) fn expand(&self, compact: &Tensor) -> Result<Tensor> {
        let Some(strided) = &self.strided else { return Ok(compact.clone()) };
        let mut x = compact.clone();
        let rank = strided.order.len();
        if strided.inner_gap {
            x = x.unsqueeze(rank)?.pad_with_zeros(rank, 0, 1)?;
        }
        for (dim, _) in strided.gaps.iter().enumerate().filter(|(_, gap)| **gap) {
            x = x.pad_with_zeros(dim, 0, 1)?;
        }
        let dims = compact.dims();
        for (dim, _) in strided.gaps.iter().enumerate().filter(|(_, gap)| **gap) {
            x = x.narrow(dim, 0, dims[dim])?;
        }
        if strided.inner_gap {
            x = x.narrow(rank, 0, 1)?.squeeze(rank)?;
        }
        let x = self.restore_order(&x)?;
        if strided.repeated.contains(&true) {
            return Ok(x.broadcast_as(&self.shape)?);
        }
        Ok(x)
    }

    /// A tensor with the dimensions in the order of the memory, in the order of the tensor.
    pub(super) fn restore_order(&self, x: &Tensor) -> Result<Tensor> {
        let Some(strided) = &self.strided else { return Ok(x.clone()) };
        let mut inverse = vec![0; strided.order.len()];
        for (i, &dim) in strided.order.iter().enumerate() {
            inverse[dim] = i;
        }
        Ok(x.permute(inverse)?)
    }
}

impl Strided {
    /// `None` for what is no view with gaps and repetition of a contiguous tensor, such as overlapping windows.
    fn of(layout: &Layout) -> Option<Self> {
        let (dims, strides) = (layout.dims(), layout.stride());
        if layout.shape().elem_count() == 0 {
            return None;
        }
        let repeated: Vec<bool> = dims.iter().zip(strides).map(|(&d, &s)| d > 1 && s == 0).collect();
        let length = |dim: usize| if repeated[dim] { 1 } else { dims[dim] };
        // Dimensions of one element have no place of their own: they go outermost, where they disturb nothing.
        let mut order: Vec<usize> = (0..dims.len()).collect();
        order.sort_by_key(|&dim| std::cmp::Reverse(if length(dim) == 1 { usize::MAX } else { strides[dim] }));
        let mut gaps = vec![false; order.len()];
        let mut inner_gap = false;
        let mut inside = 1; // elements that the dimensions further in take
        for (i, &dim) in order.iter().enumerate().rev().filter(|(_, &dim)| length(dim) > 1) {
            let stride = strides[dim];
            if stride < inside {
                return None;
            }
            if stride > inside {
                match gaps.get_mut(i + 1) {
                    Some(gap) => *gap = true,
                    None => inner_gap = true,
                }
            }
            inside = stride * dims[dim];
        }
        Some(Strided { order, gaps, inner_gap, repeated })
    }
}

/// Whether a tensor that is packed and unpacked has the order in memory that it has now, as a leaf of a graph if
/// `tracked`. If not, it must be made contiguous before the first pass too.
pub(crate) fn recompute_sees_the_same(layout: &Layout, tracked: bool) -> bool {
    if layout.is_contiguous() || layout.shape().elem_count() == 0 {
        return true;
    }
    match Strided::of(layout) {
        // A leaf gets one gradient for an element, but each repetition has its own.
        Some(strided) => !(tracked && strided.repeated.contains(&true)),
        // Kept as it is, which a leaf cannot be.
        None => !tracked,
    }
}
