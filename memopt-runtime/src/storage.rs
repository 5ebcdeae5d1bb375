//! Raw CPU buffers behind tensors: owned copies, bytes, addresses. Everything here is dtype-generic glue.

mod channels;
mod in_place;

pub(crate) use channels::{gather, split, split_steps, ChannelsMut};
pub(crate) use in_place::with_cpu_mut;

use crate::compress::kernels::copied;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Result, Shape, Storage, Tensor};
use parking_lot::Mutex;
use std::ops::Range;

/// Runs the same expression on the vector of any dtype.
macro_rules! on_vec {
    ($storage:expr, $v:ident => $body:expr) => {{
        use candle_core::CpuStorage as S;
        match $storage {
            S::U8($v) => $body,
            S::U32($v) => $body,
            S::I16($v) => $body,
            S::I32($v) => $body,
            S::I64($v) => $body,
            S::BF16($v) => $body,
            S::F16($v) => $body,
            S::F32($v) => $body,
            S::F64($v) => $body,
            S::F8E4M3($v) => $body,
            S::F6E2M3($v) => $body,
            S::F6E3M2($v) => $body,
            S::F4($v) => $body,
            S::F8E8M0($v) => $body,
        }
    }};
}

pub(crate) use on_vec;

/// Number of elements in a buffer.
pub(crate) fn len(storage: &CpuStorage) -> usize {
    on_vec!(storage, v => v.len())
}

/// Number of elements of a shape; `None` if that is more than there can be.
pub(crate) fn elements(shape: &Shape) -> Option<usize> {
    shape.dims().iter().try_fold(1usize, |n, &dim| n.checked_mul(dim))
}

/// Dtype of the elements in a buffer.
pub(crate) fn dtype(storage: &CpuStorage) -> DType {
    use candle_core::backend::BackendStorage;
    storage.dtype()
}

/// A tensor over an owned buffer, without a copy; `is_variable` makes it a leaf that backward stops at.
pub(crate) fn into_tensor(storage: CpuStorage, shape: impl Into<Shape>, is_variable: bool) -> Tensor {
    Tensor::from_storage(Storage::Cpu(storage), shape, BackpropOp::none(), is_variable)
}

/// Runs `f` on a CPU tensor's buffer; `None` on another device.
pub(crate) fn with_cpu<R>(tensor: &Tensor, f: impl FnOnce(&CpuStorage, &Layout) -> R) -> Option<R> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(cpu) => Some(f(cpu, layout)),
        _ => None,
    }
}

/// Where a tensor's elements are in its buffer, if they are contiguous.
///
/// A view without elements may begin beyond the end of its buffer.
pub(crate) fn range(layout: &Layout) -> Option<Range<usize>> {
    let (start, end) = layout.contiguous_offsets()?;
    Some(if start == end { 0..0 } else { start..end })
}

/// A row-major copy of a CPU tensor's elements; `None` on another device.
pub(crate) fn copy_of(tensor: &Tensor) -> Result<Option<CpuStorage>> {
    // Candle cannot copy a view without elements that begins beyond the end of its buffer.
    let tensor = match tensor.elem_count() {
        0 => Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device())?,
        _ if !tensor.is_contiguous() && tensor.device().is_cpu() => {
            // That is a copy already.
            return taken(tensor.contiguous()?).map(Some);
        }
        _ => tensor.clone(),
    };
    Ok(with_cpu(&tensor, |storage, layout| {
        let range = range(layout)?;
        macro_rules! copy {
            ($($variant:ident)*) => {
                match storage { $(CpuStorage::$variant(v) => Some(CpuStorage::$variant(copied(&v[range]))),)* }
            };
        }
        copy!(U8 U32 I16 I32 I64 BF16 F16 F32 F64 F8E4M3 F6E2M3 F6E3M2 F4 F8E8M0)
    })
    .flatten())
}

/// Address and bytes of the whole buffer behind a tensor, which is what a view of it keeps alive.
pub(crate) fn buffer_of(tensor: &Tensor) -> (usize, usize) {
    let (storage, _) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(cpu) => {
            on_vec!(cpu, v => (v.as_ptr() as usize, std::mem::size_of_val(v.as_slice())))
        }
        // Other devices do not show the address of a buffer: its elements are counted, each tensor for itself.
        _ => (0, tensor.elem_count() * tensor.dtype().size_in_bytes()),
    }
}

/// An empty buffer with room for `n` elements.
pub(crate) fn with_capacity(dtype: DType, n: usize) -> Result<CpuStorage> {
    Ok(match dtype {
        DType::F32 => CpuStorage::F32(Vec::with_capacity(n)),
        DType::F64 => CpuStorage::F64(Vec::with_capacity(n)),
        DType::BF16 => CpuStorage::BF16(Vec::with_capacity(n)),
        DType::F16 => CpuStorage::F16(Vec::with_capacity(n)),
        other => return Err(candle_core::Error::UnsupportedDTypeForOp(other, "time chunks")),
    })
}

/// A copy of some elements.
pub(crate) fn part(storage: &CpuStorage, range: Range<usize>) -> CpuStorage {
    macro_rules! part {
        ($($variant:ident)*) => {
            match storage { $(CpuStorage::$variant(v) => CpuStorage::$variant(v[range].to_vec()),)* }
        };
    }
    part!(U8 U32 I16 I32 I64 BF16 F16 F32 F64 F8E4M3 F6E2M3 F6E3M2 F4 F8E8M0)
}

/// An owned copy of a CPU tensor's elements.
pub(crate) fn owned(tensor: &Tensor) -> Result<CpuStorage> {
    copy_of(tensor)?.ok_or_else(|| candle_core::Error::Msg("a tensor on the CPU expected".into()))
}

/// The buffer of a tensor, without a copy; the tensor is empty then, and so is every other one over the same storage: it must
/// be one that nobody else has, as what a function has just computed. (`contiguous` may give the tensor it was called on.)
pub(crate) fn taken(tensor: Tensor) -> Result<CpuStorage> {
    if tensor.elem_count() == 0 {
        // Candle writes over no tensor without elements.
        return owned(&tensor);
    }
    let whole = with_cpu(&tensor, |storage, layout| range(layout) == Some(0..len(storage)));
    if whole != Some(true) {
        return owned(&tensor);
    }
    let take = Take(Mutex::default());
    tensor.inplace_op1(&take)?;
    take.0.into_inner().ok_or_else(|| candle_core::Error::Msg("a tensor on the CPU expected".into()))
}

struct Take(Mutex<Option<CpuStorage>>);

impl InplaceOp1 for Take {
    fn name(&self) -> &'static str {
        "take"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> Result<()> {
        macro_rules! take {
            ($($variant:ident)*) => {
                match storage { $(CpuStorage::$variant(v) => CpuStorage::$variant(std::mem::take(v)),)* }
            };
        }
        let taken = take!(U8 U32 I16 I32 I64 BF16 F16 F32 F64 F8E4M3 F6E2M3 F6E3M2 F4 F8E8M0);
        *self.0.lock() = Some(taken);
        Ok(())
    }
}

/// Moves the first `len` elements of each slot of `slot` to the front, one behind the other, and lets the rest go.
pub(crate) fn compact(storage: &mut CpuStorage, slot: usize, len: usize) {
    fn compact<T: Copy>(v: &mut Vec<T>, slot: usize, len: usize) {
        let slots = v.len() / slot.max(1);
        (1..slots).for_each(|i| v.copy_within(i * slot..i * slot + len, i * len));
        v.truncate(slots * len);
        v.shrink_to_fit();
    }
    match storage {
        CpuStorage::BF16(v) => compact(v, slot, len),
        CpuStorage::F16(v) => compact(v, slot, len),
        CpuStorage::F32(v) => compact(v, slot, len),
        CpuStorage::F64(v) => compact(v, slot, len),
        _ => {}
    }
}

/// Adds a tensor's elements at the end; false if it has another dtype, or is not on the CPU.
pub(crate) fn extend(storage: &mut CpuStorage, tensor: &Tensor) -> Result<bool> {
    each(storage, tensor, &mut |to| to.extend())
}

/// Writes a tensor's elements over those from `start` on; false if they do not fit.
pub(crate) fn write(storage: &mut CpuStorage, start: usize, tensor: &Tensor) -> Result<bool> {
    each(storage, tensor, &mut |to| to.write(start))
}

/// A buffer and the elements that go into it, whatever their type.
trait Destination {
    fn extend(&mut self) -> bool;
    fn write(&mut self, start: usize) -> bool;
}

impl<T: Copy> Destination for (&mut Vec<T>, &[T]) {
    fn extend(&mut self) -> bool {
        self.0.extend_from_slice(self.1);
        true
    }

    fn write(&mut self, start: usize) -> bool {
        match self.0.get_mut(start..start + self.1.len()) {
            Some(to) => {
                to.copy_from_slice(self.1);
                true
            }
            None => false,
        }
    }
}

fn each(
    storage: &mut CpuStorage,
    tensor: &Tensor,
    f: &mut dyn FnMut(&mut dyn Destination) -> bool,
) -> Result<bool> {
    let tensor = tensor.contiguous()?;
    let done = with_cpu(&tensor, |from, layout| {
        let range = range(layout)?;
        macro_rules! each {
            ($($variant:ident)*) => {
                match (storage, from) {
                    $((CpuStorage::$variant(to), CpuStorage::$variant(from)) => Some(f(&mut (to, &from[range]))),)*
                    _ => None,
                }
            };
        }
        each!(BF16 F16 F32 F64)
    });
    Ok(done.flatten().unwrap_or(false))
}

/// Whether two contiguous CPU tensors have the same bits, element by element.
pub(crate) fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    let same = with_cpu(a, |a, a_layout| {
        with_cpu(b, |b, b_layout| {
            let (i, j) = (range(a_layout)?, range(b_layout)?);
            macro_rules! same {
                ($($variant:ident)*) => {
                    match (a, b) {
                        $((CpuStorage::$variant(a), CpuStorage::$variant(b)) => {
                            let (a, b) = (&a[i], &b[j]);
                            Some(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.word() == b.word()))
                        })*
                        _ => Some(false),
                    }
                };
            }
            same!(U8 U32 I16 I32 I64 BF16 F16 F32 F64 F8E4M3 F6E2M3 F6E3M2 F4 F8E8M0)
        })
    });
    same.flatten().flatten().unwrap_or(false)
}

/// A 64-bit checksum of a tensor's elements in row-major order, dtype and shape.
///
/// It tells "the same bits" from "other bits"; it is no defence against intent.
pub(crate) fn checksum(tensor: &Tensor) -> Result<u64> {
    let tensor = match tensor.elem_count() {
        0 => Tensor::zeros(tensor.shape(), tensor.dtype(), &Device::Cpu)?,
        _ => tensor.to_device(&Device::Cpu)?.contiguous()?,
    };
    let bits = with_cpu(&tensor, |storage, layout| {
        let range = range(layout)?;
        Some(on_vec!(storage, v => v[range].iter().fold(Mix::default(), |mix, e| mix.add(e.word())).0))
    });
    let mut mix = Mix(bits.flatten().unwrap_or_default());
    for &dim in tensor.dims() {
        mix = mix.add(dim as u64);
    }
    Ok(mix.add(tensor.dtype() as u64).0)
}

#[derive(Default)]
struct Mix(u64);

impl Mix {
    /// One step of a multiplicative hash (the constants of SplitMix64).
    fn add(self, word: u64) -> Self {
        let x = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Mix(x ^ (x >> 29))
    }
}

/// The bits of an element.
trait Bits {
    fn word(&self) -> u64;
}
macro_rules! bits {
    ($($ty:ty: $e:ident => $bits:expr;)*) => { $(impl Bits for $ty { fn word(&self) -> u64 { let $e = self; ($bits) as u64 } })* };
}
bits! {
    u8: e => *e;
    u32: e => *e;
    i16: e => *e;
    i32: e => *e;
    i64: e => *e;
    half::bf16: e => e.to_bits();
    half::f16: e => e.to_bits();
    f32: e => e.to_bits();
    f64: e => e.to_bits();
    float8::F8E4M3: e => e.to_bits();
}
