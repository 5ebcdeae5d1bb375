//! The order of a tensor in memory: taken off before it is kept, put back afterwards.
//!
//! Candle's kernels take other paths, with other roundings, for tensors that are not contiguous. A recompute must see
//! the order in memory that the first pass saw, and whoever uses an output the one that plain code gives, or a spike may
//! flip.

use crate::Result;
use candle_core::{Layout, Shape, Tensor};

/// How a tensor lies in memory, apart from its elements.
///
/// *Compact* is the same tensor without repetition and gaps, contiguous, its dimensions in the order of the memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arrangement {
    shape: Shape,
    form: Form,
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Contiguous,
    Strided(Strided),
    /// It overlaps itself in another way than by repetition, as windows do: there is no compact form.
    Overlapping,
}

#[derive(Debug, Clone, PartialEq)]
struct Strided {
    /// `order[i]` is the tensor's dimension that is the i-th in memory.
    order: Vec<usize>,
    /// Whether dimension i in memory is followed by a gap. Candle tells gaps from none, but not their sizes.
    gaps: Vec<bool>,
    /// Whether the elements of the innermost dimension are apart.
    inner_gap: bool,
    /// Which of the tensor's dimensions repeat one element.
    repeated: Vec<bool>,
}

impl Arrangement {
    pub(crate) fn of(layout: &Layout) -> Self {
        let shape = layout.shape().clone();
        // Candle's `is_contiguous` overlooks the strides of single elements, but its matrix product does not.
        let row_major = layout.stride() == Layout::contiguous(&shape).stride();
        let form = if row_major || shape.elem_count() == 0 {
            Form::Contiguous
        } else {
            Strided::of(layout).map_or(Form::Overlapping, Form::Strided)
        };
        Arrangement { shape, form }
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether there is no compact form.
    pub(crate) fn overlaps(&self) -> bool {
        self.form == Form::Overlapping
    }

    /// Whether it is compact as it is.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.form == Form::Contiguous
    }

    pub(crate) fn compact_shape(&self) -> Shape {
        match &self.form {
            Form::Strided(s) => {
                let dims = self.shape.dims();
                let length = |&dim: &usize| if s.repeated[dim] { 1 } else { dims[dim] };
                Shape::from(s.order.iter().map(length).collect::<Vec<_>>())
            }
            _ => self.shape.clone(),
        }
    }

    /// The tensor with each repetition once; a view.
    pub(crate) fn without_repetition(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        if let Form::Strided(s) = &self.form {
            for (dim, _) in s.repeated.iter().enumerate().filter(|(_, repeated)| **repeated) {
                x = x.narrow(dim, 0, 1)?;
            }
        }
        Ok(x)
    }

    /// The tensor without repetition, its dimensions in the order of the memory; a view.
    pub(crate) fn in_memory_order(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.without_repetition(x)?;
        match &self.form {
            Form::Strided(s) => Ok(x.permute(s.order.as_slice())?),
            _ => Ok(x),
        }
    }

    /// The compact tensor; copies only if there are gaps.
    pub(crate) fn compact(&self, x: &Tensor) -> Result<Tensor> {
        match self.shape.elem_count() {
            // Candle cannot copy a view that begins beyond the end of its buffer.
            0 if !x.track_op() => Ok(Tensor::zeros(&self.shape, x.dtype(), x.device())?),
            _ => Ok(self.in_memory_order(x)?.contiguous()?),
        }
    }

    /// The tensor from its compact form.
    pub(crate) fn expand(&self, compact: &Tensor) -> Result<Tensor> {
        let Form::Strided(s) = &self.form else { return Ok(compact.clone()) };
        let mut x = compact.clone();
        let (rank, dims) = (compact.rank(), compact.dims());
        let gaps = || s.gaps.iter().enumerate().filter(|(_, gap)| **gap).map(|(dim, _)| dim);
        if s.inner_gap {
            x = x.unsqueeze(rank)?.pad_with_zeros(rank, 0, 1)?;
        }
        for dim in gaps() {
            x = x.pad_with_zeros(dim, 0, 1)?;
        }
        for dim in gaps() {
            x = x.narrow(dim, 0, dims[dim])?;
        }
        if s.inner_gap {
            x = x.narrow(rank, 0, 1)?.squeeze(rank)?;
        }
        let x = self.restore_order(&x)?;
        if s.repeated.contains(&true) {
            return Ok(x.broadcast_as(&self.shape)?);
        }
        Ok(x)
    }

    /// A tensor of the compact shape, its dimensions in the order of the tensor: what [`Self::without_repetition`] has.
    pub(crate) fn restore_order(&self, x: &Tensor) -> Result<Tensor> {
        let Form::Strided(s) = &self.form else { return Ok(x.clone()) };
        let mut inverse = vec![0; s.order.len()];
        for (i, &dim) in s.order.iter().enumerate() {
            inverse[dim] = i;
        }
        Ok(x.permute(inverse)?)
    }
}

impl Strided {
    /// `None` for what is no view with gaps and repetition of a contiguous tensor.
    fn of(layout: &Layout) -> Option<Self> {
        let (dims, strides) = (layout.dims(), layout.stride());
        let repeated: Vec<bool> = dims.iter().zip(strides).map(|(&d, &s)| d > 1 && s == 0).collect();
        let single = |dim: usize| repeated[dim] || dims[dim] == 1;
        // Outermost first; of two with the same stride, the one with a single element is further in.
        let mut order: Vec<usize> = (0..dims.len()).collect();
        order.sort_by_key(|&dim| std::cmp::Reverse((strides[dim], !single(dim))));
        // A dimension of a single element whose stride is too small to stand where it is sorted goes outermost.
        let mut inside = 1; // elements that the dimensions further in take
        let mut placed = Vec::with_capacity(order.len());
        let mut outermost = Vec::new();
        for &dim in order.iter().rev() {
            match strides[dim] >= inside {
                true => {
                    placed.push((dim, strides[dim] > inside));
                    inside = strides[dim] * if single(dim) { 1 } else { dims[dim] };
                }
                false if single(dim) => outermost.push((dim, false)),
                false => return None,
            }
        }
        placed.extend(outermost);
        placed.reverse();
        // A stride with a gap is one whose next dimension further in is followed by the gap.
        let gap = |i: usize| i.checked_sub(1).is_some_and(|outer| placed[outer].1);
        let gaps = (0..placed.len()).map(gap).collect();
        let inner_gap = placed.last().is_some_and(|last| last.1);
        Some(Strided { order: placed.iter().map(|p| p.0).collect(), gaps, inner_gap, repeated })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    /// Expanding the compact form gives a tensor whose strides stand to each other as before.
    #[test]
    fn candle_sees_the_same_relations_of_strides() -> Result<()> {
        let x = Tensor::arange(0f32, 120., &Device::Cpu)?.reshape((2, 3, 4, 5))?;
        let views = [
            x.transpose(0, 3)?,
            x.narrow(1, 0, 1)?,
            x.narrow(2, 1, 2)?.transpose(1, 2)?,
            x.narrow(3, 0, 1)?,
            x.narrow(3, 2, 1)?.squeeze(3)?,
            x.narrow(0, 1, 1)?.narrow(2, 0, 1)?,
            x.narrow(0, 1, 1)?,
            x.reshape((120, 1))?.t()?,
            x.reshape((1, 120))?.t()?,
            x.unsqueeze(0)?,
            x.unsqueeze(2)?,
            x.get(1)?.unsqueeze(1)?.broadcast_as((3, 6, 4, 5))?,
            x.narrow(1, 1, 2)?.broadcast_as((2, 2, 2, 4, 5))?,
        ];
        let relations = |t: &Tensor| {
            let (d, s) = (t.dims().to_vec(), t.stride().to_vec());
            let chain: Vec<bool> = (1..d.len()).map(|i| s[i - 1] == d[i] * s[i]).collect();
            let apart = s.iter().all(|&s| s != 1);
            let gaps = (chain.contains(&false) && !t.is_contiguous()) || apart;
            // without gaps the strides are the same, else they stand to each other as before
            let strides = if gaps { s.iter().map(|&s| s.min(2)).collect() } else { s };
            (t.is_contiguous(), strides, chain)
        };
        for view in views {
            let arrangement = Arrangement::of(view.layout());
            let compact = arrangement.compact(&view)?;
            assert!(compact.is_contiguous());
            assert_eq!(compact.shape(), &arrangement.compact_shape());
            let back = arrangement.expand(&compact)?;
            assert_eq!(relations(&back), relations(&view), "{:?}", view.layout());
            let values = |t: &Tensor| t.flatten_all()?.to_vec1::<f32>();
            assert_eq!(values(&back)?, values(&view)?);
        }
        let windows = x.get(0)?.get(0)?.unfold(1, 3, 1)?;
        assert!(Arrangement::of(windows.layout()).overlaps());
        let empty = Tensor::zeros((3, 0), DType::F32, &Device::Cpu)?.t()?;
        assert!(Arrangement::of(empty.layout()).is_contiguous());
        Ok(())
    }
}
